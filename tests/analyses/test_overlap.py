"""overlap, exposed: op by op against brute force; by hand; other tools' figures where they mean the same."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake import call, comm, make, nvtx, op
from random_profiles import Tables, profiles, role
from stepscope import api
from stepscope.analyses.breakdown import breakdown
from stepscope.analyses.exposed import exposed
from stepscope.analyses.overlap import overlap
from stepscope.derive.windows.spec import WindowSpec
from stepscope.errors import BadInput, CannotAnswer

WHOLE = WindowSpec()


def test_stages_by_hand():
    p = make(
        ops=[
            op(0, 100, call=1),
            comm(90, 130, call=2),  # 10 hidden, 30 exposed
            comm(150, 170, call=3),  # all exposed
            comm(0, 20, stream=11, call=4),  # all hidden, no stage
            comm(200, 230, stream=7, call=5),  # in order with compute: a barrier
        ],
        calls=[call(10 * k, 10 * k + 1, k) for k in range(1, 6)],
        ranges=[
            nvtx(15, 35, "layer00_stage5_f_layer01_stage2_f"),
            nvtx(25, 34, "copy in"),
            nvtx(45, 55, "layer01.stage4_b"),
        ],
    )
    rows = {r["stage"]: r for r in overlap(p, WHOLE).rows.to_dicts()}
    assert list(rows) == ["stage2_f", "stage4_b", "(no stage)"]
    two = rows["stage2_f"]
    assert (two["n"], two["comm_ns"], two["exposed_ns"], two["exposed_wall_ns"]) == (2, 60, 50, 50)
    assert two["overlap_pct"] == pytest.approx(100 * 10 / 60)
    assert (two["overlap_min_pct"], two["overlap_max_pct"]) == (0.0, pytest.approx(25.0))
    assert (rows["stage4_b"]["n"], rows["stage4_b"]["barrier_ns"], rows["stage4_b"]["overlap_pct"]) == (0, 30, None)
    assert (rows["(no stage)"]["overlap_pct"], rows["(no stage)"]["exposed_ns"]) == (100.0, 0)


def test_side_by_side_ops_count_once_on_the_wall():
    p = make(ops=[comm(0, 20, stream=9), comm(10, 30, stream=11)])
    row = overlap(p, WHOLE).rows.to_dicts()[0]
    assert (row["comm_ns"], row["exposed_ns"], row["exposed_wall_ns"]) == (40, 40, 30)


def test_compute_of_another_step_hides_communication():
    p = make(
        ops=[op(0, 10, call=1), comm(10, 20, call=2), op(12, 18, call=3)],
        calls=[call(0, 1, 1), call(11, 12, 2), call(21, 22, 3)],
        ranges=[nvtx(10 * k, 10 * k + 9, f"step {k}") for k in range(3)],
    )
    row = overlap(p, WindowSpec(index=1)).rows.to_dicts()[0]
    assert (row["comm_ns"], row["exposed_ns"]) == (10, 4)


def test_without_compute_to_hide_behind_the_exposure_is_qualified():
    for question in (overlap, exposed, breakdown):
        notes = question(make(ops=[comm(0, 5), op(0, 9, proc=1), comm(5, 9, proc=1)]), WHOLE).notes
        assert any(n.startswith("no compute kernel on rank 0: all communication") for n in notes), question


def test_a_stage_pattern_that_cannot_be_read_is_bad_input():
    profile = make(ops=[op(0, 5), comm(2, 9)])
    for question in (overlap, exposed):
        for pattern in ("(", "stage(?=2)"):
            with pytest.raises(BadInput, match=r"--stage .* is not a regular expression"):
                question(profile, WHOLE, stage=pattern)
    with pytest.raises(BadInput, match="--top -1"):
        api.analyse(profile, "exposed", top=-1)


def test_stages_of_a_window_in_gpu_time():
    # No anchor is looked for, so the stage is the first to read the ranges, and their names with them.
    tables = {"ops": [op(0, 5, call=1), comm(3, 9, call=2)], "calls": [call(0, 1, 1), call(1, 2, 2)]}
    for question in (overlap, exposed):
        profile = make(**tables, ranges=[nvtx(0, 3, "layer00.stage2_f")])
        assert question(profile, WindowSpec(start=4, end=9)).rows["stage"].to_list() == ["stage2_f"]


def test_ranks_of_merged_torch_traces_have_no_pid():
    profile = make(ops=[op(0, 5), comm(2, 9)])
    profile.ranks = profile.ranks.with_columns(pl.lit(None, pl.Int64).alias("pid"))
    assert exposed(profile, WHOLE).rows["pid"].to_list() == [None]


def test_no_answer_without_communication():
    with pytest.raises(CannotAnswer, match="communication"):
        overlap(make(ops=[op(0, 1)]), WHOLE)


def _bare(ops: list[dict[str, Any]], lo: int, hi: int) -> list[int]:
    """Instants of [lo, hi) in which nothing computes."""
    compute = [o for o in ops if role(o) == "compute"]
    return [t for t in range(lo, hi) if not any(o["start_ns"] <= t < o["end_ns"] for o in compute)]


@settings(max_examples=80, deadline=None)
@given(profiles(), st.booleans(), st.integers(0, 30), st.integers(1, 60))
def test_streams_figures_equal_brute_force(tables: Tables, given_time: bool, start: int, length: int):
    ops = tables["ops"]
    if not any(role(o) == "comm" for o in ops):
        return
    lo, hi = (start, start + length) if given_time else (0, 10**6)
    inside = [o for o in ops if o["start_ns"] < hi and o["end_ns"] > lo]
    computing = {o["stream"] for o in inside if role(o) == "compute"}
    want: dict[int, dict[str, Any]] = defaultdict(lambda: {"n": 0, "comm_ns": 0, "exposed_ns": 0, "barrier_ns": 0})
    wall: dict[int, set[int]] = defaultdict(set)
    for o in (o for o in inside if role(o) == "comm"):
        s, e = max(o["start_ns"], lo), min(o["end_ns"], hi)
        row = want[o["stream"]]
        if o["stream"] in computing:
            row["barrier_ns"] += e - s
            continue
        row["n"] += 1
        row["comm_ns"] += e - s
        row["exposed_ns"] += len(_bare(ops, s, e))
        wall[o["stream"]] |= set(_bare(ops, s, e))
    spec = WindowSpec(start=lo, end=hi) if given_time else WHOLE
    rows = overlap(make(ops=ops, calls=tables["calls"]), spec, by="stream").rows.to_dicts()
    assert {r["stream"]: {k: r[k] for k in want[r["stream"]]} for r in rows} == dict(want)
    assert {r["stream"]: r["exposed_wall_ns"] for r in rows} == {s: len(wall[s]) for s in want}


@settings(max_examples=80, deadline=None)
@given(profiles())
@pytest.mark.slow
def test_single_ops_equal_brute_force(tables: Tables):
    ops = tables["ops"]
    if not any(role(o) == "comm" for o in ops):
        return
    launched = {c["correlation"]: c["start_ns"] for c in tables["calls"] if c["correlation"] is not None}
    rows = exposed(make(ops=ops, calls=tables["calls"]), WHOLE).rows.to_dicts()
    compute = [o for o in ops if role(o) == "compute"]

    def called(o: dict[str, Any]) -> int:
        return launched.get(o["correlation"], o["start_ns"])

    def one(o: dict[str, Any]) -> tuple[int, ...]:
        held = starved = 0
        for t in _bare(ops, o["start_ns"], o["end_ns"]):
            after = [c for c in compute if c["start_ns"] >= t]
            waiting = after and called(after[0]) <= t
            held, starved = (held + 1, starved) if waiting else (held, starved + 1)
        return o["stream"], o["start_ns"], o["end_ns"] - o["start_ns"], held + starved, held, starved

    got = [(r["stream"], r["start_ns"], r["dur_ns"], r["exposed_ns"], r["held_ns"], r["starved_ns"]) for r in rows]
    assert sorted(got) == sorted(one(o) for o in ops if role(o) == "comm")
    assert [r["exposed_ns"] for r in rows] == sorted((r["exposed_ns"] for r in rows), reverse=True)


# -- real traces -----------------------------------------------------------------------------------------------------


def test_overlapped_and_serialized_are_told_apart(shared: Path):
    for group, hidden in (("moe4", 0.3), ("moe4mps", 15.0)):
        share = {}
        for name in ("overlapped", "serialized"):
            profile = api.open(shared / f"traces/h200/{group}/{name}.sqlite", cache=False)
            totals = profile.overlap().summary["total"]
            share[name] = [t["overlap_pct"] for t in totals]
        assert all(p == 0.0 for p in share["serialized"]), group
        assert all(p > hidden for p in share["overlapped"]), group


@pytest.mark.parametrize("name", ["h200_moe4_overlapped", "h200_moe4mps_overlapped", "a100_nccl_metadata_world2"])
def test_whole_capture_equals_traceinsight(shared: Path, name: str):
    """Its overlap is of unions over the whole trace: ours in the same window, from `breakdown`'s sets."""
    golden = pl.read_csv(shared / f"golden/traceinsight-0.6.1/{name}/exact/comm_comp_overlap.csv")
    if name.startswith("h200"):
        group, _, what = name.removeprefix("h200_").partition("_")
        trace = f"traces/h200/{group}/{what}.rank*.pt.trace.json.gz"
    else:
        trace = f"traces/public/{name}.json.gz"
    profile = api.open(str(shared / trace), cache=False)
    spans = profile.ops.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    rows = profile.breakdown(start=spans[0], end=spans[1]).rows
    share = 100.0 * rows["comm_hidden_ns"] / (rows["comm_hidden_ns"] + rows["comm_exposed_ns"])
    column = next(c for c in golden.columns if "overlap" in c)
    assert share.to_list() == pytest.approx(golden.sort("rank")[column].to_list(), abs=0.006)


def _ranks(*exposed: tuple[int, int]) -> Any:
    """Ranks with one all-to-all of 100 ns in each stage, of which so many ns have no compute beside them."""
    tables: dict[str, list[Any]] = {"ops": [], "calls": [], "ranges": []}
    for rank, bare in enumerate(exposed):
        of: dict[str, Any] = {"proc": rank}
        for k, ns in enumerate(bare):
            at = 1000 * (k + 1)
            tables["calls"] += [call(10 * k, 10 * k + 1, 2 * k + 1) | of, call(10 * k + 2, 10 * k + 3, 2 * k + 2) | of]
            tables["ops"] += [comm(at, at + 100, call=2 * k + 1, **of), op(at + ns, at + 100, call=2 * k + 2, **of)]
            tables["ranges"] += [nvtx(10 * k, 10 * k + 9, f"layer00.stage{2 * k + 2}_f", **of)]
    return make(**tables)


def test_over_ranks_by_hand():
    """Three ranks expose 10, 50 and 30 of 100 ns in stage 2, and 5, 5 and 0 in stage 4: sums, medians, the worst."""
    answer = overlap(_ranks((10, 5), (50, 5), (30, 0)), WHOLE, across=True)
    two, four = answer.rows.to_dicts()
    assert (two["stage"], two["ranks"], two["n"], two["comm_ns"], two["exposed_ns"]) == ("stage2_f", 3, 3, 300, 90)
    assert (two["overlap_pct"], two["exposed_median_ns"], two["overlap_median_pct"]) == (70.0, 30, 70.0)
    assert (two["worst_rank"], two["worst_exposed_ns"], two["worst_overlap_pct"]) == (1, 50, 50.0)
    assert (four["exposed_median_ns"], four["worst_rank"]) == (5, 0)  # of equals the first
    assert overlap(_ranks((10, 5), (50, 5)), WHOLE, across=True).rows["exposed_median_ns"].to_list() == [30, 5]


@pytest.mark.parametrize("by", ["stage", "range", "stream", "purpose", "op"])
def test_rows_over_ranks_sum_up_those_of_ranks(by: Any):
    profile = _ranks((10, 5), (50, 5), (30, 0))
    each, over = overlap(profile, WHOLE, by=by).rows, overlap(profile, WHOLE, by=by, across=True).rows
    for row in over.iter_rows(named=True):
        mine = each.filter(pl.col(by) == row[by])
        assert [row[c] for c in ("n", "comm_ns", "exposed_ns")] == [
            mine[c].sum() for c in ("n", "comm_ns", "exposed_ns")
        ]
        assert row["worst_exposed_ns"] == mine["exposed_ns"].max()
        assert mine.filter(pl.col("rank") == row["worst_rank"])["exposed_ns"].item() == row["worst_exposed_ns"]


def test_a_stage_of_barriers_has_no_worst_rank():
    p = make(ops=[op(0, 10, call=1), comm(10, 30, stream=7, call=2)], calls=[call(1, 2, 1), call(3, 4, 2)])
    row = overlap(p, WHOLE, across=True).rows.row(0, named=True)
    assert (row["ranks"], row["barrier_ns"], row["worst_rank"], row["overlap_pct"]) == (1, 20, None, None)
