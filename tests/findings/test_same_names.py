"""`stragglers` and `diagnose` name the same ranks and links. `make reliability` asks it of every fault and schedule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from faultcases import MESHES, scenario
from jobs import written
from marks import slow_unless
from promises import new
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


#: Several runs of one kind of capture: one of each is quick.
QUICK = ("alcf_two_ranks", "world128", "dlrm8")


@pytest.mark.parametrize("name", slow_unless(QUICK.__contains__, [name for name, _ in real(Path())]))
def test_on_every_real_trace_of_several_ranks(shared: Path, name: str) -> None:
    paths = dict(real(shared / "traces"))[name]
    assert paths
    assert disagreements(api.open(*paths, cache=False)) == []


@pytest.mark.parametrize("name", ("world128", pytest.param("amd_merged_all", marks=pytest.mark.slow)))
def test_launches_and_diagnose_agree_when_the_queue_is_empty(shared: Path, name: str) -> None:
    """Slow launching costs no more than the GPU starves: what was launched long ago waits for something else."""
    profile = api.open(*dict(real(shared / "traces"))[name], cache=False)
    findings = api.analyse(profile, "diagnose", least=0.0).rows.filter(pl.col("id") == "launch-bound")
    starved = [verdict["starved_ns"] for verdict in api.analyse(profile, "launches").summary["verdict"]]
    beside = api.analyse(profile, "exposed", step=True).rows.group_by("rank").agg(pl.col("starved_ns").sum())
    matched = name != "world128"  # of 2 of 128 ranks nobody waits for the other
    most = sum(starved) + beside["starved_ns"].sum() if matched else max(starved) + (beside["starved_ns"].max() or 0)
    assert findings.height
    assert 0 < findings["recoverable_ns"].sum() <= 1.05 * most  # a launch takes a moment to arrive


@pytest.mark.parametrize("name", (pytest.param("hf4_straggler", marks=pytest.mark.slow), "python-before-blocks"))
def test_nobody_takes_the_place_of_a_rank_that_is_missing(name: str, shared: Path, tmp_path: Path) -> None:
    """The file of the rank at fault is not there: all others wait for it, and each is last among them now and then."""
    if name == "hf4_straggler":
        files = sorted((shared / "traces" / "h200" / "hf").glob("hf4_straggler.rank[013].*"))
    else:
        files = sorted(new.unpacked("ranks_gpt", f"{name}-on-rank-1", "torch", tmp_path).glob("rank[023].*"))
    assert len(files) == 3
    profile = api.open(*files, cache=False)
    assert disagreements(profile) == []
    assert api.analyse(profile, "stragglers").summary["stragglers"] == []
    found = api.analyse(profile, "diagnose").rows["id"].to_list()
    assert not {"straggler", "late-node", "compute-imbalance"}.intersection(found)
