"""`breakdown` over the whole capture against what other tools say of the same traces (../shared/golden).

Where their definitions are ours the figures must be equal. `exact-unions.csv` is integer arithmetic on the raw JSON and
has the last word; traceinsight and TraceLens are compared wherever docs/differences.md names no reason against it.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stepscope import api

#: trace set of the golden figures -> its files
SETS = {
    "h200_moe4_overlapped": "traces/h200/moe4/overlapped.rank*.json.gz",
    "h200_moe4mps_overlapped": "traces/h200/moe4mps/overlapped.rank*.json.gz",
    "h200_train_eager": "traces/h200/train/eager.pt.trace.json.gz",
    "h200_train_compiled": "traces/h200/train/compiled.pt.trace.json.gz",
    "dlrm8": "traces/public/dlrm8/dlrm_kineto/*.json",
    "world128_ranks0-1": "traces/public/world128.rank*.json.gz",
    "a100_nccl_metadata_world2": "traces/public/a100_nccl_metadata_world2.json.gz",
    "h100_qwen": "traces/public/h100_qwen.json.gz",
    "mi300x_qwen": "traces/public/mi300x_qwen.json.gz",
    "puzzler_cudagraph": "traces/public/puzzler_cudagraph.json.gz",
    "puzzler_d2h_sync": "traces/public/puzzler_d2h_sync.json.gz",
}
#: docs/differences.md, "traceinsight counts Triton's host rows as GPU work"
TRACEINSIGHT_WRONG = {"h200_train_compiled"}
#: ns: their timestamps are float64 microseconds near 4e12, worth 0.5 ns each
TOLERANCE = 100


@cache
def breakdown(shared: Path, name: str) -> dict[int, dict[str, Any]]:
    profile = api.open(str(shared / SETS[name]), cache=False)
    rows = api.analyse(profile, "breakdown", whole=True).rows.to_dicts()
    return dict(enumerate(sorted(rows, key=lambda r: r["rank"])))


def golden(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def ns(microseconds: str) -> float:
    return float(microseconds) * 1000


@pytest.mark.parametrize("name", SETS)
def test_the_union_of_integers(shared: Path, name: str) -> None:
    wanted = [r for r in golden(shared / "golden/exact-unions.csv") if r["trace_set"] == name]
    ours = breakdown(shared, name)
    assert len(wanted) == len(ours) > 0
    for i, row in enumerate(sorted(wanted, key=lambda r: int(r["rank"]))):
        mine = ours[i]
        busy = mine["compute_ns"] + mine["comm_exposed_ns"] + mine["copy_exposed_ns"]
        assert mine["window_ns"] == round(ns(row["window_us"]))
        assert mine["idle_ns"] == round(ns(row["idle_us"]))
        assert busy == round(ns(row["busy_us"]))
        assert mine["compute_ns"] == round(ns(row["compute_us"]))
        assert mine["comm_exposed_ns"] == round(ns(row["exposed_comm_us"]))
        assert mine["comm_hidden_ns"] == round(ns(row["comm_and_compute_us"]))


@pytest.mark.parametrize("name", [n for n in SETS if n not in TRACEINSIGHT_WRONG])
def test_traceinsight(shared: Path, name: str) -> None:
    folder = shared / "golden/traceinsight-0.6.1" / name / "exact"
    wanted = golden(folder / "temporal_breakdown.csv")
    if not wanted:
        pytest.skip("the golden call failed: see its run.json")
    for i, row in enumerate(wanted):
        mine = breakdown(shared, name)[i]
        assert mine["window_ns"] == pytest.approx(ns(row["kernel_time(us)"]), abs=TOLERANCE)
        assert mine["idle_ns"] == pytest.approx(ns(row["idle_time(us)"]), abs=TOLERANCE)
        assert mine["compute_ns"] == pytest.approx(ns(row["compute_time(us)"]), abs=TOLERANCE)
        rest = mine["comm_exposed_ns"] + mine["copy_exposed_ns"]
        assert rest == pytest.approx(ns(row["non_compute_time(us)"]), abs=TOLERANCE)
    for i, row in enumerate(golden(folder / "comm_comp_overlap.csv")):
        mine = breakdown(shared, name)[i]
        comm = mine["comm_hidden_ns"] + mine["comm_exposed_ns"]
        if row["comp_comm_overlap_pctg"] and comm:
            # Whole hundredths on their side.
            theirs = float(row["comp_comm_overlap_pctg"])
            assert 100 * mine["comm_hidden_ns"] / comm == pytest.approx(theirs, abs=0.006)


@pytest.mark.parametrize("name", SETS)
def test_tracelens(shared: Path, name: str) -> None:
    """Windows, busy and idle time; its computation has memsets in it, so exposure may be a little lower than ours."""
    wanted = golden(shared / "golden/tracelens" / name / "gpu_timeline_include_unlinked.csv")
    if not wanted:
        pytest.skip("TraceLens found no GPU events there: see its run.json")
    by_rank: dict[int, dict[str, float]] = {}
    for row in wanted:
        by_rank.setdefault(int(row["rank"]), {})[row["type"]] = float(row["time ms"]) * 1e6
    for rank, theirs in by_rank.items():
        mine = breakdown(shared, name)[rank]
        assert mine["window_ns"] == pytest.approx(theirs["total_time"], abs=TOLERANCE)
        assert mine["idle_ns"] == pytest.approx(theirs["idle_time"], abs=TOLERANCE)
        assert mine["compute_ns"] <= theirs["computation_time"] + TOLERANCE
        assert mine["comm_exposed_ns"] >= theirs["exposed_comm_time"] - TOLERANCE


def test_every_golden_set_is_compared(shared: Path) -> None:
    """A set left out of `SETS` must have its reason in docs/differences.md."""
    known = {p.name for p in (shared / "golden/traceinsight-0.6.1").iterdir() if (p / "run.json").exists()}
    text = (Path(__file__).parents[2] / "docs/differences.md").read_text()
    for name in known - set(SETS):
        assert f"`{name}`" in text, name
