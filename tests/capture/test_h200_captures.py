"""Real captures of examples/moe_reference on one H200: good by `capture verify`, and the planted cause shows in each.

Made by examples/moe_reference/capture_h200.sh: four ranks under one nsys (2025.3), or torch.profiler on each, a quarter
of the GPU for each rank (MPS), NCCL over the loopback. Scrubbed; torch's traces are thinned by scrub.py. Figures are
those of analyses, compared with the healthy capture; what `diagnose` must say is in diagnoses.toml.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import reference_captures
import stepscope
from marks import slow_unless
from stepscope import api
from stepscope.capture import size
from stepscope.cli.main import run
from stepscope.findings.registry import detectors

PLANTED = reference_captures.planted()
BACKENDS = reference_captures.BACKENDS
Capture = Callable[[str, str], Path]
STEP = r"^step \d+$"


@pytest.fixture(scope="module")
def profile(reference_capture: Capture) -> Callable[[str, str], stepscope.Profile]:
    return cache(lambda name, backend: api.open(reference_capture(name, backend), cache=False))


@pytest.fixture
def ask(profile: Any, request: pytest.FixtureRequest) -> Callable[..., Any]:
    def asked(name: str, command: str, **options: Any) -> Any:
        return api.analyse(profile(name, request.node.callspec.params["backend"]), command, **options)

    return asked


def hidden_pct(ask: Callable[..., Any], name: str) -> float:
    total = ask(name, "overlap").summary["total"]  # of the steady chunk
    return 100 * (1 - sum(t["exposed_ns"] for t in total) / sum(t["comm_ns"] for t in total))


def idle_pct(ask: Callable[..., Any], name: str, cause: str | None = None) -> float:
    """Of the step, over all ranks."""
    rows = ask(name, "idle", by="cause", anchor=STEP).rows
    kept = rows if cause is None else rows.filter(pl.col("cause") == cause)
    window = ask(name, "breakdown", anchor=STEP).rows["window_ns"].sum()
    return 100 * kept["total_ns"].sum() / window


def test_every_fault_has_a_capture_by_each_profiler() -> None:
    there = {p.name for p in reference_captures.DATA.iterdir()}
    assert there == {f"{name}.{backend}.tar.xz" for name in PLANTED for backend in BACKENDS}


def test_diagnoses_name_findings_that_there_are() -> None:
    assert {i for p in PLANTED.values() for i in p.ids} <= {d.id for d in detectors()}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", slow_unless(("none", "straggler").__contains__, PLANTED))
def test_good(reference_capture: Capture, capsys: pytest.CaptureFixture[str], name: str, backend: str) -> None:
    """Ranks under one nsys stopped together: all have their steps to the end, and every launch has its op."""
    assert run(["capture", "verify", str(reference_capture(name, backend)), "--format", "json"]) == 0
    checks = {r["check"]: r for r in json.loads(capsys.readouterr().out)["rows"]}
    whole = ("ranks", "setup label", "steps", "nothing before the steps", "steady state", "kernels", "not cut off")
    for check in (*whole, "nothing dropped", "ranges closed", "clock"):
        assert checks[check]["status"] == "ok", checks[check]
    assert checks["slowdown"]["status"] != "skipped"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PLANTED)
def test_nothing_private(reference_capture: Capture, name: str, backend: str) -> None:
    for file in reference_capture(name, backend).iterdir():
        raw = file.read_bytes()
        for private in (b"/root/", b"/home/", b"/tmp/", b"/opt/", b".vm.", b"TOKEN", b"LS_COLORS"):
            assert private not in raw, (file.name, private)


#: Reports of nsys, which are not test data: bytes, as capture_h200.sh printed them.
REPORTS = {"none": 463_232, "serialized": 463_521, "straggler": 476_843, "imbalance": 471_395, "late-node": 464_747}


@pytest.mark.parametrize("name", REPORTS)
def test_the_plan_knows_their_size(reference_capture: Capture, name: str) -> None:
    """Within a factor of two: one layer a rank, six micro-batches, four ranks in a file."""
    events = 4 * size.events(layers=1, dense=0, micro_batches=6, ep=2, cp=1, tp=1).total
    (export,) = reference_capture(name, "nsys").glob("*.sqlite")
    assert 0.5 < size.file_bytes(events, "report") / REPORTS[name] < 2
    assert 0.5 < size.file_bytes(events, "export") / export.stat().st_size < 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_healthy_one_computes(ask: Any, backend: str) -> None:
    rows = ask("none", "breakdown", chunk=True).rows  # in its steady state: the step has bubbles
    assert rows["compute_ns"].sum() > 0.85 * rows["window_ns"].sum()
    assert hidden_pct(ask, "none") > 40


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_waited_for_at_once_hides_nothing(ask: Any, backend: str) -> None:
    assert hidden_pct(ask, "serialized") < 0.5


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["straggler", "imbalance"])
def test_the_slow_rank_is_named_and_its_compute_blamed(ask: Any, name: str, backend: str) -> None:
    first = ask(name, "stragglers").rows.row(0, named=True)
    assert ((first["rank"],), first["cause"]) == (PLANTED[name].ranks, "compute")
    assert first["excess_ns"] > 10 * ask("none", "stragglers").rows["excess_ns"].max()


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_slow_link_is_named(ask: Any, backend: str) -> None:
    """Only the group of ranks 0 and 1 is paced: its transfers take longer, for the same bytes."""
    rows = ask("slow-link", "collectives").rows.filter(pl.col("op") == "all_to_all")
    typical = dict(rows.group_by("ranks").agg(pl.col("transfer_ns").median()).iter_rows())
    assert typical["0-1"] > 4 * typical["2-3"]
    assert rows["bytes"].n_unique() == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_host_faults_are_told_by_the_cause_of_idle_time(ask: Any, backend: str) -> None:
    assert idle_pct(ask, "none", "alloc") < 0.1 < 1.5 < idle_pct(ask, "alloc", "alloc")
    assert idle_pct(ask, "alloc") > 4 * idle_pct(ask, "none")
    assert idle_pct(ask, "host-syncs") > 4 * idle_pct(ask, "none")


@pytest.mark.parametrize("backend", BACKENDS)
def test_tiny_kernels_are_many(ask: Any, backend: str) -> None:
    """96 pieces, forward and backward (for the inputs, and again for the weights), in each of 6 micro-batches."""
    rows = ask("tiny-kernels", "kernels", anchor=STEP).rows
    gelu = rows.filter(pl.col("name").str.contains("Gelu")).group_by("rank").agg(pl.col("n").sum())
    assert gelu["n"].to_list() == [3 * 96 * 6] * 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_stalled_loader_is_named_by_its_range(ask: Any, backend: str) -> None:
    """Three steps: two stalls of 100 ms between them, on each of four ranks."""
    rows = ask("dataloader", "idle", by="range", whole=True).rows
    assert rows.filter(pl.col("range") == "data")["total_ns"].sum() > 4 * 2 * 95_000_000


@pytest.mark.parametrize("backend", BACKENDS)
def test_ranks_that_come_late_are_waited_for(ask: Any, backend: str) -> None:
    """Ranks 0 and 1 wait 100 ms for the others in the step, ranks 2 and 3 do not."""
    mine = {r["rank"]: r["comm_exposed_ns"] for r in ask("late-node", "breakdown", anchor=STEP).rows.to_dicts()}
    healthy = {r["rank"]: r["comm_exposed_ns"] for r in ask("none", "breakdown", anchor=STEP).rows.to_dicts()}
    more = {rank: mine[rank] - healthy[rank] for rank in mine}
    assert min(more[0], more[1]) > 60_000_000 > max(more[2], more[3])
