"""`stragglers` and `diagnose` name the same ranks and links. `make reliability` asks it of every fault and schedule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from faultcases import MESHES, scenario
from jobs import written
from marks import slow_unless
from samenames import LINKS, disagreements, real
from stepscope import api

#: One fault of each kind, spread over the schedules.
FAULTS = {
    "1f1b": ("straggler:rank=1,factor=1.1", "late-node:node=1,delay_us=8000"),
    "fsdp": ("imbalance:rank=1,factor=1.1", "alloc:rank=3"),
    "dualpipev": ("dataloader:rank=1", "slow-host:rank=2,factor=3"),
    "interleaved": ("straggler:rank=1,factor=1.05", "host-syncs:rank=2"),
    "zero-bubble": ("imbalance:rank=2,factor=2.0", "slow-host:"),
    "ddp": ("tiny-kernels:rank=1", "serialized:rank=1"),
}
#: Around the threshold, and slow links that nothing waits for.
SLOW = (("1f1b", "node=1", 1.4), ("1f1b", "node=1", 1.5), ("fsdp", "ranks=0-1", 1.7), ("zero-bubble", "ranks=0-1", 3))
PLANTED = ("none", "straggler", "imbalance", "slow-link", "late-node", "slow-host")


@pytest.mark.parametrize("schedule", slow_unless(("fsdp", "ddp").__contains__, MESHES))
@pytest.mark.parametrize("nth", (0, 1))
def test_on_simulated_faults(schedule: str, nth: int) -> None:
    with written(scenario(schedule, FAULTS[schedule][nth])) as (_, folder):
        assert disagreements(api.open(folder, cache=False)) == []


@pytest.mark.slow
@pytest.mark.parametrize("link", slow_unless(lambda link: link[0] == "fsdp", SLOW))
def test_on_slow_links(link: tuple[str, str, float]) -> None:
    schedule, where, factor = link
    job = scenario(schedule, f"slow-link:{where},factor={factor}", seed=7, **LINKS[schedule])
    with written(job) as (_, folder):
        assert disagreements(api.open(folder, cache=False)) == []


@pytest.mark.parametrize("name", slow_unless("slow-link".__eq__, PLANTED))
@pytest.mark.parametrize("backend", ("nsys", "torch"))
def test_on_captures(reference_capture: Callable[[str, str], Path], name: str, backend: str) -> None:
    assert disagreements(api.open(reference_capture(name, backend), cache=False)) == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", ("nsys", "torch"))
def test_nobody_is_named_in_a_healthy_capture(reference_capture: Callable[[str, str], Path], backend: str) -> None:
    """Four ranks that share a GPU: their kernels, hosts and transfers differ by chance alone."""
    for name in ("none", "serialized"):
        result = api.analyse(api.open(reference_capture(name, backend), cache=False), "stragglers")
        assert (result.summary["stragglers"], result.summary["slow_links"]) == ([], [])


@pytest.mark.slow
def test_on_real_traces(shared: Path) -> None:
    few = ("hf4_straggler", "hf4_straggler/torch", "moe4/torch", "moe4mps/cut_off", "h100x2_before.sqlite")
    chosen = {name: paths for name, paths in real(shared / "traces") if name in few}
    assert len(chosen) == len(few)
    for name, paths in chosen.items():
        assert disagreements(api.open(*paths, cache=False)) == [], name
