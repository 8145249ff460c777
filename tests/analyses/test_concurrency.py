"""Concurrency: counts, pairs and reasons by hand and by brute force; overlapped against serialized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake import call, comm, copy, make, op, record, wait
from stepscope import api
from stepscope.analyses.concurrency import concurrency
from stepscope.derive.graph.dependencies import dependencies
from stepscope.derive.rank.data import ranks_of
from stepscope.derive.windows.spec import WindowSpec
from stepscope.errors import CannotAnswer

WHOLE = WindowSpec()


def _totals(rows: pl.DataFrame, *keys: str) -> dict[Any, int]:
    found = {tuple(r[k] for k in keys): r["total_ns"] for r in rows.to_dicts()}
    return {k[0] if len(k) == 1 else k: v for k, v in found.items()}


def test_counts_and_pairs_by_hand():
    p = make(ops=[op(0, 10), op(20, 30), comm(5, 25)])
    r = concurrency(p, WHOLE)
    assert _totals(r.rows, "streams") == {0: 0, 1: 20, 2: 10}
    assert r.summary["together"][0]["mean_streams"] == pytest.approx(40 / 30)
    pair = concurrency(p, WHOLE, by="pair").rows.to_dicts()[0]
    assert (pair["stream_a"], pair["stream_b"], pair["busy_a_ns"], pair["busy_b_ns"]) == (7, 9, 20, 20)
    assert (pair["together_ns"], pair["together_pct"]) == (10, 50.0)


def test_an_event_wait_serializes_two_streams():
    p = make(
        ops=[comm(10, 40, call=1), op(42, 50, call=2)],
        calls=[call(1, 2, 1), call(5, 6, 2)],
        syncs=[record(3, 1, stream=9), wait(4, 1, stream=7)],
    )
    rows = concurrency(p, WHOLE, by="exposed").rows
    assert _totals(rows, "reason", "waits_for") == {("event", "ncclDevKernel_SendRecv"): 30}
    streams = _totals(concurrency(p, WHOLE, by="stream").rows, "stream", "reason")
    assert streams == {(7, "busy"): 8, (7, "event"): 30, (7, "unknown"): 2, (9, "busy"): 30, (9, "tail"): 10}
    late = concurrency(p, WHOLE, by="op").rows.filter(pl.col("name") == "gemm").to_dicts()[0]
    assert (late["wait_ns"], late["stalled_ns"], late["held_ns"], late["unknown_ns"]) == (37, 37, 35, 2)
    assert (late["reason"], late["waits_for"], late["waits_for_stream"]) == ("event", "ncclDevKernel_SendRecv", 9)


def test_events_pass_through_streams_without_work():
    """torch's communication stream only hands events on to NCCL's own: stream 9 → 13 → 21."""
    p = make(
        ops=[op(0, 30, call=1), comm(31, 40, stream=21, call=2)],
        calls=[call(0, 1, 1), call(9, 10, 2)],
        syncs=[record(2, 1, stream=7), wait(3, 1, stream=13), record(4, 2, stream=13), wait(5, 2, stream=21)],
    )
    row = concurrency(p, WHOLE, by="op").rows.filter(pl.col("stream") == 21).to_dicts()[0]
    assert (row["reason"], row["waits_for"], row["waits_for_stream"]) == ("event", "gemm", 7)


def test_order_on_one_stream_is_named():
    p = make(
        ops=[comm(0, 30, stream=7, call=1), op(30, 40, stream=7, call=2)],
        calls=[call(0, 1, 1), call(2, 3, 2)],
        syncs=[],
    )
    rows = concurrency(p, WHOLE, by="exposed").rows
    assert _totals(rows, "reason", "waits_for") == {("stream", "ncclDevKernel_SendRecv"): 30}


def test_a_late_launch_names_what_the_host_did():
    p = make(
        ops=[comm(0, 100, call=1), op(90, 95, call=2)],
        calls=[call(0, 1, 1), call(10, 40, None, "cudaStreamSynchronize"), call(60, 62, 2)],
        syncs=[],
    )
    rows = concurrency(p, WHOLE, by="exposed").rows
    assert _totals(rows, "reason") == {"sync": 30, "host": 30 - 1 + 0, "api": 1, "unknown": 30, "tail": 5}


def test_an_event_without_a_record_is_unknown_and_noted():
    p = make(
        ops=[comm(0, 30, call=1), op(32, 40, call=2)],
        calls=[call(0, 1, 1), call(5, 6, 2)],
        syncs=[wait(4, 77, stream=7)],
    )
    r = concurrency(p, WHOLE, by="exposed")
    assert _totals(r.rows, "reason") == {"host": 5 - 1, "api": 1, "unknown": 25}
    assert any("1 waits for events have no record" in n for n in r.notes)
    bare = make(ops=[comm(0, 30, call=1)], calls=[call(0, 1, 1)])
    assert any("no event records" in n for n in concurrency(bare, WHOLE, by="stream").notes)


def test_no_answer_without_launches():
    with pytest.raises(CannotAnswer, match="launch"):
        concurrency(make(ops=[op(0, 1)]), WHOLE, by="stream")
    assert concurrency(make(ops=[op(0, 1), comm(0, 2)]), WHOLE).rows.height == 3
    with pytest.raises(CannotAnswer, match="one stream"):
        concurrency(make(ops=[op(0, 1)]), WHOLE)
    with pytest.raises(CannotAnswer, match="communication"):
        concurrency(make(ops=[op(0, 1)]), WHOLE, by="exposed")


# -- brute force -----------------------------------------------------------------------------------------------------

_STREAMS = (7, 9, 13)


@st.composite
def _programs(draw: st.DrawFn) -> dict[str, list[dict[str, Any]]]:
    """A host program: launches, records and waits in turn, then GPU times that keep to its order."""
    syncs: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    ops: list[dict[str, Any]] = []
    t, recorded = 0, []
    free = dict.fromkeys(_STREAMS, 0)
    done: dict[int, int] = {}
    for step in draw(st.lists(st.tuples(st.sampled_from("LLRW"), st.sampled_from(_STREAMS)), min_size=1, max_size=14)):
        kind, stream = step
        t += draw(st.integers(1, 4))
        if kind == "L":
            start = max(t, free[stream]) + draw(st.integers(0, 5))
            end = start + draw(st.integers(1, 6))
            free[stream] = end
            calls.append(call(t, t + 1, len(calls) + 1))
            maker = draw(st.sampled_from([op, comm, copy]))
            ops.append(maker(start, end, stream=stream, call=len(calls)))
        elif kind == "R":
            recorded.append(len(recorded) + 1)
            done[recorded[-1]] = free[stream]
            syncs.append(record(t, recorded[-1], stream))
        elif recorded:
            event = draw(st.sampled_from(recorded))
            free[stream] = max(free[stream], done[event])
            syncs.append(wait(t, event, stream))
    return {"ops": ops, "calls": calls, "syncs": syncs}


def _brute(tables: dict[str, list[dict[str, Any]]]) -> list[tuple[int | None, int | None]]:
    """Per op (in the order of launches): end of the latest op before it on its stream, and behind its events."""
    items = [(c["start_ns"], "L", i) for i, c in enumerate(tables["calls"])]
    items += [(s["start_ns"], "R" if s["kind"] == "record" else "W", i) for i, s in enumerate(tables["syncs"])]
    before: dict[int, list[int]] = {s: [] for s in _STREAMS}  # ends of everything a stream has behind it
    on_stream: dict[int, list[int]] = {s: [] for s in _STREAMS}
    since: dict[int, list[int]] = {s: [] for s in _STREAMS}
    event: dict[int, list[int]] = {}
    found = []
    for _, kind, i in sorted(items):
        if kind == "L":
            o = tables["ops"][i]
            s = o["stream"]
            found.append((max(on_stream[s], default=None), max(since[s], default=None)))
            on_stream[s].append(o["end_ns"])
            before[s].append(o["end_ns"])
            since[s] = []
        elif kind == "R":
            r = tables["syncs"][i]
            event[r["event"]] = list(before[r["stream"]])
        else:
            w = tables["syncs"][i]
            since[w["stream"]] += event[w["event"]]
            before[w["stream"]] += event[w["event"]]
    return found


@settings(max_examples=80, deadline=None)
@given(_programs())
def test_dependencies_equal_brute_force(tables: dict[str, list[dict[str, Any]]]):
    if not tables["ops"]:
        return
    profile = make(**tables)
    data = next(iter(ranks_of(profile)))
    got = dependencies(data, data.syncs)
    want = _brute(tables)
    by_launch = data.launch
    for row in range(len(data.start)):
        for mine, end in zip((got.stream[row], got.event[row]), want[int(by_launch[row])], strict=True):
            assert (None if mine < 0 else int(data.end[mine])) == end


@settings(max_examples=60, deadline=None)
@given(_programs())
@pytest.mark.slow
def test_every_streams_parts_sum_to_the_window(tables: dict[str, list[dict[str, Any]]]):
    if not tables["ops"]:
        return
    profile = make(**tables)
    window = max(o["end_ns"] for o in tables["ops"]) - min(o["start_ns"] for o in tables["ops"])
    if len({o["stream"] for o in tables["ops"]}) > 1:
        assert concurrency(profile, WHOLE).rows["total_ns"].sum() == window
    rows = concurrency(profile, WHOLE, by="stream").rows
    for (_,), part in rows.group_by("stream"):
        assert part["total_ns"].sum() == window
    bare = _exposed(tables["ops"])
    if not any("nccl" in o["name"] for o in tables["ops"]):
        return
    assert (concurrency(profile, WHOLE, by="exposed").rows["total_ns"].sum() or 0) == bare


def _exposed(ops: list[dict[str, Any]]) -> int:
    def at(t: int, of: str) -> bool:
        return any(o["start_ns"] <= t < o["end_ns"] for o in ops if o["name"].startswith(of))

    return sum(at(t, "nccl") and not at(t, "gemm") for t in range(max(o["end_ns"] for o in ops)))


# -- real traces -----------------------------------------------------------------------------------------------------


def test_what_serializes_overlapped_and_serialized(shared: Path):
    """Waited for at once, all exposed communication is held by the collective's own event, and nothing overlaps."""
    rows = {}
    for name in ("overlapped", "serialized"):
        profile = api.open(shared / f"traces/h200/moe4mps/{name}.sqlite", cache=False)
        rows[name] = concurrency(profile, WindowSpec(unit="chunk"), by="exposed")
    serialized = rows["serialized"].rows
    assert serialized["reason"].unique().to_list() == ["event"]
    assert serialized["waits_for"].unique().to_list() == ["ncclDevKernel_SendRecv"]
    assert {t["two_or_more_ns"] for t in rows["serialized"].summary["together"]} == {0}
    assert all(t["two_or_more_ns"] > 1_000_000 for t in rows["overlapped"].summary["together"])
    held = rows["overlapped"].rows.filter(pl.col("reason") == "event")["total_ns"].sum()
    assert held < 0.6 * rows["overlapped"].rows["total_ns"].sum()


@pytest.mark.slow
def test_parts_sum_on_every_real_trace(shared: Path):
    for path in sorted(shared.glob("traces/**/*.sqlite")):
        profile = api.open(path, cache=False)
        if profile.ops.height == 0:
            continue
        result = concurrency(profile, WHOLE, by="stream")
        windows = {w["rank"]: w for w in result.window if w["gpu_start_ns"] is not None}
        for (rank, _), part in result.rows.group_by("rank", "stream"):
            length = windows[rank]["gpu_end_ns"] - windows[rank]["gpu_start_ns"]
            assert part["total_ns"].sum() == length, (path, rank)
        assert np.all(result.rows["total_ns"].to_numpy() >= 0)
