"""breakdown, idle: every nanosecond of random windows against brute force; exact sums on every real trace."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake import call, copy, make, nvtx, op
from random_profiles import Tables, cause, part, profiles
from stepscope import api
from stepscope.analyses.breakdown import breakdown
from stepscope.analyses.idle import idle
from stepscope.derive.windows.spec import WindowSpec
from stepscope.errors import CannotAnswer

WHOLE = WindowSpec()
PARTS = {
    "compute": "compute_ns",
    "comm": "comm_exposed_ns",
    "copy": "copy_exposed_ns",
    "idle": "idle_ns",
}
PUBLIC = (
    "h100_qwen",
    "mi300x_qwen",
    "world128.rank0",
    "puzzler_cudagraph",
    "puzzler_d2h_sync",
    "a100_nccl_metadata_world2",
)


def _window(tables: Tables) -> tuple[int, int]:
    return min(o["start_ns"] for o in tables["ops"]), max(o["end_ns"] for o in tables["ops"])


@settings(max_examples=80, deadline=None)
@given(profiles(), st.booleans(), st.integers(0, 30), st.integers(1, 60))
@pytest.mark.slow
def test_the_partition_equals_brute_force(tables: Tables, given_time: bool, start: int, length: int):
    lo, hi = (start, start + length) if given_time else _window(tables)
    spec = WindowSpec(start=lo, end=hi) if given_time else WHOLE
    row = breakdown(make(**{k: v for k, v in tables.items() if k != "ranges"}), spec).rows.to_dicts()[0]
    want = Counter(part(tables["ops"], t) for t in range(lo, hi))
    assert {k: row[c] for k, c in PARTS.items()} == {k: want[k] for k in PARTS}
    assert row["window_ns"] == hi - lo


@settings(max_examples=80, deadline=None)
@given(profiles(), st.booleans(), st.integers(0, 30), st.integers(1, 60))
@pytest.mark.slow
def test_idle_causes_equal_brute_force(tables: Tables, given_time: bool, start: int, length: int):
    lo, hi = (start, start + length) if given_time else _window(tables)
    spec = WindowSpec(start=lo, end=hi) if given_time else WHOLE
    profile = make(ops=tables["ops"], calls=tables["calls"] or [call(900, 901)])
    rows = idle(profile, spec).rows.to_dicts()
    want = {t: cause(tables, t, hi) for t in range(lo, hi) if part(tables["ops"], t) == "idle"}
    got = {t: r["cause"] for r in rows for t in range(r["gap_start_ns"], r["gap_start_ns"] + r["gap_ns"])}
    assert got == want
    totals = {r["cause"]: r["total_ns"] for r in idle(profile, spec, by="cause").rows.to_dicts()}
    assert totals == dict(Counter(want.values()))


@settings(max_examples=60, deadline=None)
@given(profiles())
@pytest.mark.slow
def test_the_trees_top_level_sums_to_the_window(tables: Tables):
    lo, hi = _window(tables)
    rows = breakdown(make(**tables), WHOLE, tree=True).rows.to_dicts()
    top = [r for r in rows if r["depth"] == 0]
    assert sum(r["total_ns"] for r in top) == hi - lo
    want = Counter(part(tables["ops"], t) for t in range(lo, hi))
    for k, column in PARTS.items():
        assert sum(r[column] for r in top) == want[k]
    for r in rows:
        below = [c for c in rows if c["depth"] == r["depth"] + 1 and c["path"].startswith(r["path"] + " > ")]
        assert sum(c["total_ns"] for c in below) <= r["total_ns"]


def test_a_gap_is_split_at_the_launch_and_by_the_innermost_call():
    p = make(
        ops=[op(0, 10, call=1), copy(60, 61, call=2)],
        calls=[
            call(0, 1, 1),
            call(12, 40, None, "cudaStreamSynchronize"),
            call(20, 25, None, "cudaMalloc"),
            call(45, 52, 2),
        ],
        ranges=[nvtx(0, 30, "forward"), nvtx(30, 70, "data")],
    )
    rows = idle(p, WHOLE).rows.select("gap_start_ns", "gap_ns", "cause", "range", "call", "next_op").rows()
    assert rows == [
        (10, 2, "host", "forward", None, "[memset]"),
        (12, 8, "sync", "forward", "cudaStreamSynchronize", "[memset]"),
        (20, 5, "alloc", "forward", "cudaMalloc", "[memset]"),
        (25, 15, "sync", "forward", "cudaStreamSynchronize", "[memset]"),
        (40, 5, "host", "data", None, "[memset]"),
        (45, 15, "queue", "data", "cudaLaunchKernel", "[memset]"),
    ]


def test_a_rank_without_gpu_work_idles_through_a_window_in_gpu_time():
    profile = make(ops=[op(0, 10, call=1)], calls=[call(0, 1, 1), {**call(0, 1, 1), "proc": 1}])
    rows = idle(profile, WindowSpec(start=4, end=9)).rows.select("rank", "gap_ns", "cause", "next_op").rows()
    assert rows == [(1, 5, "tail", None)]


def test_a_queued_op_is_of_the_range_that_launched_it():
    p = make(
        ops=[op(100, 110, call=1), op(130, 140, call=2)],
        calls=[call(0, 1, 1), call(12, 13, 2)],
        ranges=[nvtx(0, 10, "forward"), nvtx(10, 20, "backward"), nvtx(105, 150, "checkpoint")],
    )
    rows = idle(p, WHOLE).rows.select("gap_start_ns", "gap_ns", "cause", "range").rows()
    assert rows == [(110, 20, "queue", "backward")]


def test_time_between_steps_is_in_the_second_of_them():
    tables = {
        "ops": [op(1000 * k + 5, 1000 * k + 405, call=k + 1) for k in range(3)],
        "calls": [call(1000 * k + 1, 1000 * k + 2, k + 1) for k in range(3)],
        "ranges": [nvtx(1000 * k, 1000 * k + 900, f"step {k}") for k in range(3)],
    }
    result = breakdown(make(**tables), WHOLE)  # step 1: from 405 to 1405
    row = result.rows.to_dicts()[0]
    assert (result.window[0]["label"], row["window_ns"], row["compute_ns"], row["idle_ns"]) == (
        "step 1",
        1000,
        400,
        600,
    )
    assert result.notes == []
    gaps = idle(make(**tables), WHOLE).rows.select("gap_start_ns", "gap_ns", "cause").rows()
    # in the range of step 0, in none, in that of step 1; from the launch on, queued
    assert gaps == [(405, 495, "host"), (900, 100, "host"), (1000, 1, "host"), (1001, 4, "queue")]
    steps = breakdown(make(**tables), WHOLE, by="step").rows
    assert steps["window_ns"].to_list() == [405, 1000, 1000]  # the first begins with its range
    assert result.summary["all_steps"]["steps"] == 3
    assert result.summary["all_steps"]["mean_ns"] == round(2405 / 3)
    assert result.summary["all_steps"]["compute_pct"] == pytest.approx(100 * 1200 / 2405)


def test_a_range_that_was_asked_for_is_its_own_ops_or_with_period_all_to_the_next():
    tables = {
        "ops": [op(1000 * k + 5, 1000 * k + 405, call=k + 1) for k in range(3)],
        "calls": [call(1000 * k + 1, 1000 * k + 2, k + 1) for k in range(3)],
        "ranges": [nvtx(1000 * k, 1000 * k + 900, f"step {k}") for k in range(3)],
    }

    def asked(**spec: Any) -> tuple[int, list[str]]:
        result = breakdown(make(**tables), WindowSpec(anchor="^step", **spec))
        return result.rows["window_ns"][0], result.notes

    assert asked() == (400, [])
    assert asked(period=True) == (1000, [])
    said = "rank 0: nothing follows the last instance, so its window ends with its last op"
    assert asked(period=True, index=-1) == (400, [said])


def test_no_answer_without_gpu_work_or_calls():
    with pytest.raises(CannotAnswer):
        breakdown(make(calls=[call(0, 1)]), WHOLE)
    with pytest.raises(CannotAnswer, match="API calls"):
        idle(make(ops=[op(0, 1)]), WHOLE)


def _traces(shared: Path) -> list[Path]:
    kineto = [shared / f"traces/public/{n}.json.gz" for n in PUBLIC]
    own = sorted(shared.glob("traces/h200/**/*.json.gz"))
    return [*sorted(shared.glob("traces/**/*.sqlite")), *own, *kineto]


@pytest.mark.slow
@pytest.mark.parametrize("index", ["median", "all"])
def test_partitions_and_causes_sum_exactly_on_every_real_trace(shared: Path, index: str):
    asked = 0
    for path in _traces(shared):
        profile = api.open(path, cache=False)
        if profile.ops.height == 0:
            with pytest.raises(CannotAnswer):
                profile.breakdown()
            continue
        steps = profile.breakdown(by="step" if index == "all" else "rank").rows
        parts = sum(steps[c] for c in PARTS.values())
        assert (parts == steps["window_ns"]).all(), path
        if profile.has("calls"):
            causes = profile.idle(index=index, by="cause").rows
            assert (causes["total_ns"].sum() or 0) == steps["idle_ns"].sum(), path
        tree = profile.breakdown(tree=True, index=index).rows
        assert tree.filter(depth=0)["total_ns"].sum() == steps["window_ns"].sum(), path
        asked += 1
    assert asked > 20


def test_a_wait_for_pythons_lock_is_a_cause_of_its_own_outside_of_calls():
    """Where nsys recorded it, on the launching thread: other threads wait for the lock too, and calls count first."""
    lock = {"domain": "GIL Trace"}
    p = make(
        ops=[op(0, 10, call=1), copy(60, 61, call=2)],
        calls=[call(0, 1, 1), call(20, 30, None, "cudaStreamSynchronize"), call(50, 52, 2)],
        ranges=[
            nvtx(0, 70, "forward"),
            nvtx(12, 24, "Waiting for GIL", **lock),
            nvtx(24, 45, "Holding GIL", **lock),
            nvtx(45, 48, "Waiting for GIL", **lock),
            nvtx(30, 48, "Waiting for GIL", tid=9, **lock),
        ],
    )
    rows = idle(p, WHOLE).rows.select("gap_start_ns", "gap_ns", "cause", "range", "doing").rows()
    assert rows == [
        (10, 2, "host", "forward", None),
        (12, 8, "gil", "forward", "gil: Waiting for GIL"),
        (20, 10, "sync", "forward", None),
        (30, 15, "host", "forward", None),
        (45, 3, "gil", "forward", "gil: Waiting for GIL"),
        (48, 2, "host", "forward", None),
        (50, 10, "queue", "forward", None),
    ]
    by_cause = idle(p, WHOLE, by="cause")
    assert dict(by_cause.rows.select("cause", "total_ns").rows()) == {"host": 19, "gil": 11, "sync": 10, "queue": 10}
    assert sum(by_cause.rows["total_ns"]) == breakdown(p, WHOLE).rows["idle_ns"][0]
