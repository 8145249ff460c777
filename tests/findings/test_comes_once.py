"""What a capture does once is no step's: start-up, first kernels, graphs; and waits that keep copies apart."""

from __future__ import annotations

from typing import Any

import pytest

from fake import Row, call, comm, copy, make, nvtx, op
from stepscope import api
from stepscope.derive.rank.data import ranks_of
from stepscope.derive.rank.graphs import recordings
from stepscope.model.result import Result

US = 1_000
MS = 1_000_000


def diagnosed(least: float = 2.0, **tables: Any) -> Result:
    return api.analyse(make(**tables), "diagnose", least=least)


def titles(result: Result) -> list[str]:
    return result.rows["title"].to_list()


def kernels(names: list[str], apart: int, took: int = 200 * US) -> dict[str, list[Row]]:
    """A kernel after the other, each launched so long after the one before it ended."""
    ops: list[Row] = []
    calls: list[Row] = []
    at = 0
    for k, name in enumerate(names):
        calls.append(call(at - 20 * US, at - 10 * US, id=k + 1))
        ops.append(op(at, at + took, name, call=k + 1))
        at += took + apart
    return {"ops": ops, "calls": calls}


def test_gaps_before_what_runs_for_the_first_time_come_once() -> None:
    """Four kernels of four names, 5 ms apart: nothing says that such a gap would come again."""
    result = diagnosed(**kernels(["a", "b", "c", "d"], 5 * MS))
    assert not result.rows.height
    assert result.summary["statement"].startswith(
        "95 % of the 15.8 ms capture is start-up, which happens once: no step loses it."
    )
    (note,) = [n for n in result.notes if n.code == "comes-once"]
    assert note.startswith("95 % of this capture is idle time that occurs once")


def test_gaps_that_recur_are_lost() -> None:
    result = diagnosed(**kernels(["a"] * 4, 5 * MS))
    assert titles(result) == ["the GPU idles while the host is late to launch"]
    assert result.rows["recoverable_ns"].to_list() == [15 * MS]
    assert "comes-once" not in [n.code for n in result.notes]


def test_a_gap_of_a_step_is_lost_whatever_follows() -> None:
    """A step that is marked comes again, with the kernel that runs in it for the first time in the capture."""
    result = diagnosed(**kernels(["a", "b", "c", "d"], 5 * MS), ranges=[nvtx(-MS, 20 * MS, "step 0")])
    assert "comes-once" not in [n.code for n in result.notes]
    assert any(t.startswith("the GPU idles") for t in titles(result))


def building(at: int, thread: int = 1) -> list[Row]:
    """A capture of 10 µs."""
    return [
        call(at, at + 2 * US, name="cudaStreamBeginCapture", tid=thread),
        call(at + 8 * US, at + 10 * US, name="cudaStreamEndCapture", tid=thread),
    ]


def test_parts_of_a_graph_are_one_recording() -> None:
    """Three captures of a thread with nothing launched between, then a launch, then another."""
    calls = [c for at in (0, 30, 60, 300) for c in building(at * US)]
    calls += [call(200 * US, 205 * US, id=1)]
    (data,) = ranks_of(make(ops=[op(210 * US, 290 * US, call=1)], calls=sorted(calls, key=lambda c: c["start_ns"])))
    start, end = recordings(data)
    assert list(zip(start.tolist(), end.tolist(), strict=True)) == [(0, 70 * US), (300 * US, 310 * US)]


@pytest.mark.parametrize("steps", [1, 3])
def test_a_graph_that_is_captured_in_every_step_is_no_set_up(steps: int) -> None:
    """The host captures for most of the step; the first step of a capture alone would be set-up."""
    ops, calls, ranges = [], [], []
    for k in range(steps):
        at = k * 2 * MS
        calls += [c for n in range(20) for c in building(at + n * 50 * US)]
        calls.append(call(at + 1_000 * US, at + 1_010 * US, id=k + 1, name="cudaGraphLaunch"))
        ops.append(op(at + 1_020 * US, at + 2_000 * US, "graph", call=k + 1, kind="graph"))
        ranges.append(nvtx(at, at + 1_015 * US, f"step {k}"))
    result = api.analyse(make(ops=ops, calls=calls, ranges=ranges), "diagnose", index=steps - 1, least=0.0)
    (idle,) = [r for r in result.rows.to_dicts() if r["title"].startswith("the GPU idles")]
    again = idle["title"] == "the GPU idles while CUDA graphs are captured again"
    assert again is (steps > 1), idle["title"]


def test_shares_are_of_what_follows_the_start_up() -> None:
    """Weights are uploaded for 60 of 100 ms; then memory is allocated in front of every kernel."""
    ops: list[Row] = [copy(0, 60 * MS, call=1, copy_kind="HtoD", bytes=1 << 30)]
    calls: list[Row] = [call(-20 * US, -10 * US, id=1, name="cudaMemcpyAsync")]
    at = 60 * MS
    for k in range(10):
        calls += [call(at, at + 2 * MS, name="cudaMalloc"), call(at + 2 * MS, at + 2_010 * US, id=k + 2)]
        ops.append(op(at + 2_020 * US, at + 4 * MS, call=k + 2))
        at += 4 * MS
    result = diagnosed(ops=ops, calls=calls)
    (row,) = [r for r in result.rows.to_dicts() if r["id"] == "allocator-churn"]
    after = result.summary["mean_step_ns"]
    assert after == pytest.approx(38 * MS, rel=0.01) and result.summary["shares_of"] == "capture after start-up"
    assert row["share_pct"] == pytest.approx(100 * row["recoverable_ns"] / after)
    assert "of the 38 ms capture after start-up" in result.summary["statement"]


def two_ranks(begins: int) -> Result:
    """One step of two ranks, of which the second begins so much later; all wait for each other in two all-reduces."""
    ops, calls, ranges = [], [], []
    for rank, late in enumerate((0, begins)):
        ranges.append({"proc": rank, **nvtx(late, begins + 8 * MS, "step 0")})
        for k, at in enumerate((0, 3 * MS)):
            launched, run = late + at + MS, late + at + 1_100 * US
            ops.append({"proc": rank, **op(run, run + MS, call=10 * k + 1)})
            calls.append({"proc": rank, **call(launched, launched + 10 * US, id=10 * k + 1)})
            begun = max(run + 1_100 * US, 0)
            ended = max(begins + at + 2_700 * US, begun + 500 * US)
            ops.append({"proc": rank, **comm(begun, ended, call=10 * k + 2)})
            calls.append({"proc": rank, **call(launched + 20 * US, launched + 30 * US, id=10 * k + 2)})
    order = {"ops": ops, "calls": calls, "ranges": ranges}
    tables = {k: sorted(v, key=lambda r: (r["proc"], r["start_ns"])) for k, v in order.items()}
    hosts = [{"proc": r, "host": f"node{r}"} for r in (0, 1)]
    return api.analyse(make(hosts, **tables), "diagnose")


def test_a_rank_that_begins_the_only_step_late_is_named() -> None:
    """Nothing was recorded before: how much of it comes again is not known."""
    first = two_ranks(50 * MS).rows.to_dicts()[0]
    assert (first["id"], first["ranks"], first["cause"]) == ("late-node", "1", "possible")
    assert first["title"] == "rank 1 begins the step 50 ms after the others"
    assert first["recoverable_ns"] == pytest.approx(50 * MS, rel=0.1)
    assert first["expected_ns"] == first["recoverable_ns"] // 2
    assert "late-node" not in two_ranks(20 * US).rows["id"].to_list()


def taking_turns() -> Result:
    """A copy of 3 ms, then a kernel of 3 ms on another stream, and so on; the host waits for each."""
    ops: list[Row] = [op(-4 * MS, -MS, "busy", stream=21, call=100)]
    calls: list[Row] = [call(-5 * MS, -5 * MS + 5 * US, id=100)]
    at = 0
    for k in range(8):
        name, end = "cudaLaunchKernel" if k % 2 else "cudaMemcpyAsync", at + 3 * MS
        calls += [call(at - 8 * US, at - 3 * US, id=k + 1, name=name)]
        calls += [call(at - 2 * US, end + 10 * US, name="cudaStreamSynchronize")]
        kernel = op(at, end, "busy", stream=21, call=k + 1)
        ops.append(kernel if k % 2 else copy(at, end, stream=20, call=k + 1, copy_kind="HtoD", bytes=1 << 27))
        at = end + 20 * US
    return diagnosed(ops=ops, calls=calls)


def test_copies_that_waits_keep_apart_from_compute_are_exposed_copies() -> None:
    """The GPU hardly idles, so that the waits themselves promise nothing: the copies could run beside the kernels."""
    rows = {r["id"]: r for r in taking_turns().rows.to_dicts()}
    assert "unexplained" not in rows, rows.keys()
    assert rows["exposed-copies"]["recoverable_ns"] == pytest.approx(12 * MS, rel=0.1)


@pytest.mark.parametrize("by_mpi", [True, False])
def test_data_that_ranks_exchange_by_mpi_is_no_loader_s(by_mpi: bool) -> None:
    """Before each copy the host receives for 4 of 5 ms."""
    ops: list[Row] = []
    calls: list[Row] = []
    at = 0
    for k in range(5):
        calls += [
            call(at, at + 5 * US, id=2 * k + 1, name="cudaMemcpyAsync"),
            call(at + 6 * US, at + 9 * US, id=2 * k + 2),
        ]
        ops.append(copy(at + 10 * US, at + 510 * US, call=2 * k + 1, copy_kind="HtoD", bytes=1 << 20))
        ops.append(op(at + 520 * US, at + MS, "saxpy", call=2 * k + 2))
        at += 6 * MS
    ranges = [nvtx(k * 6 * MS + MS, k * 6 * MS + 5 * MS, "MPI_Recv") for k in range(4)] if by_mpi else []
    row = diagnosed(ops=ops, calls=calls, ranges=ranges).rows.to_dicts()[0]
    assert row["id"] == "data-stall"
    assert ("exchanges over MPI" in row["title"]) is ("MPI_Irecv" in row["try_next"]) is by_mpi
    assert "DataLoader" not in row["try_next"]


@pytest.mark.parametrize(
    ("slow", "marked", "noted"),
    [
        pytest.param(1, False, True, id="one of its kind takes 50 times as long"),
        pytest.param(2, False, False, id="two do: it recurs"),
        pytest.param(1, True, False, id="in a step it comes again with each step"),
    ],
)
def test_the_only_gather_that_takes_so_long_makes_connections(slow: int, marked: bool, noted: bool) -> None:
    """Of two ranks, whose communicators and sizes were not recorded."""
    ops, calls, ranges = [], [], []
    for rank in (0, 1):
        at = MS
        for k, ns in enumerate([MS] * 6 + [50 * MS] * slow + [MS] * 3):
            calls += [call(at - 100 * US, at - 90 * US, id=2 * k + 1), call(at - 80 * US, at - 70 * US, id=2 * k + 2)]
            ops.append(op(at, at + MS, call=2 * k + 1))
            ops.append(op(at + MS, at + MS + ns, "ncclDevKernel_AllGather_RING_LL", stream=9, call=2 * k + 2))
            at += MS + ns
        ranges += [{"proc": rank, **nvtx(0, at, "step 0")}] * marked
        for table in (ops, calls):
            table[:] = [{"proc": rank, **row} for row in table]  # those of rank 0 keep theirs
    hosts = [{"proc": r, "host": f"node{r}"} for r in (0, 1)]
    tables: dict[str, list[Row]] = {"ops": ops, "calls": calls} | ({"ranges": ranges} if marked else {})
    result = api.analyse(make(hosts, **tables), "diagnose")
    notes = [n for n in result.notes if n.code == "first-uses"]
    assert len(notes) == noted
    assert not noted or "49 ms, all-gather" in notes[0]
