"""Ops that stream order or the end of the capture rules out: by hand, against brute force, and in time."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake import FakeSource, call, copy, make, op
from stepscope import api
from stepscope.errors import GateFailed
from stepscope.model.door import Door
from stepscope.model.stream_order import out_of_order
from stepscope.verify.verify import verify

US, MS = 1_000, 1_000_000
Row = dict[str, Any]


def steady(n: int = 50, stream: int = 7, first: int = 1) -> list[Row]:
    """Kernels of 1 ms, one after the other."""
    return [op(k * MS, (k + 1) * MS, stream=stream, call=first + k) for k in range(n)]


def kept(ops: list[Row], calls: list[Row] | None = None, **more: list[Row]) -> tuple[int, list[str]]:
    source = FakeSource({"ops": ops, **({"calls": calls} if calls else {}), **more})
    behind = Door(source)
    return behind.read("ops").frame.height, list(behind.quality.notes)


def test_a_kernel_that_outlasts_its_stream_is_left_out_with_an_example():
    count, notes = kept([*steady(), op(10 * MS, 40 * MS, "void flash<1>(int)", call=99)])
    assert count == 50
    assert notes == [
        "ops: left out 1 row that went on after later ops of the stream were over: flash on stream 7 of rank 0,"
        " 30 ms from 10000000 ns"
    ]


@pytest.mark.parametrize(
    "more",
    [
        op(10 * MS, 40 * MS, stream=8, call=99),  # another stream
        op(10 * MS, 40 * MS, stream=7, call=99, device=1),  # another device
        op(10 * MS, 40 * MS, stream=7, call=99, context=2),  # another context
        op(10 * MS, 40 * MS, stream=7, call=None),  # nobody knows its launch
        op(10 * MS, 12 * MS + 9 * US, call=99),  # as far as rounding goes
        op(10 * MS, 11 * MS + 900 * US, call=99),  # outlasts the launch behind it, as a prefetch, and no other
        op(49 * MS + 500 * US, 60 * MS, call=99),  # begins early, ends last: programmatic dependent launch
        op(10 * MS, 20 * MS, stream=7, call=99, proc=1),  # another process
    ],
)
def test_what_can_be_stays(more: Row):
    assert kept([*steady(), more]) == (51, [])


def test_nodes_of_one_graph_run_side_by_side():
    ops = steady(10)
    graph = [op(20 * MS, 30 * MS, call=50), op(21 * MS, 22 * MS, call=50), op(23 * MS, 24 * MS, call=50)]
    assert kept([*ops, *graph, op(30 * MS, 31 * MS, call=51)]) == (14, [])
    # … but a node that goes on into the next launch does not.
    count, notes = kept([*ops, *graph, op(28 * MS, 28 * MS + 100 * US, call=51)])
    assert (count, len(notes)) == (13, 1)


def test_copies_that_amd_has_on_stream_0_are_of_any_stream():
    ops = steady(10, stream=0)
    assert kept([*ops, copy(2 * MS, 8 * MS, stream=0, call=99)]) == (11, [])
    assert kept([*ops, op(2 * MS, 8 * MS, stream=0, call=99)])[0] == 10


def test_an_op_that_ends_long_after_the_host_is_left_out():
    second = 10**9
    calls = [call(k * MS, k * MS + US, 1 + k) for k in range(50)]
    last = op(60 * MS, 60 * MS + 5 * second, call=99)
    count, notes = kept([*steady(), last], calls)
    assert count == 50
    assert notes == [
        "ops: left out 1 row that ended long after the capture: gemm on stream 7 of rank 0, 5 s from 60000000 ns"
    ]
    # A call that waits for it shows that it was so.
    waits = [*calls, call(55 * MS, 60 * MS + 5 * second, 98, "cudaDeviceSynchronize")]
    assert kept([*steady(), last], waits) == (51, [])
    # Nothing of the host: only beside many others, and ten times as long as all of them.
    assert kept([*steady(), last]) == (51, [])
    assert kept([*steady(150), op(160 * MS, 160 * MS + 5 * second, call=999)])[0] == 150
    assert kept([*steady(150), op(160 * MS, 160 * MS + second, call=999)])[0] == 151


def test_what_cannot_be_is_no_gain_and_fails_verify():
    ops = [*steady(), op(10 * MS, 40 * MS, "ncclDevKernel_AllReduce_Sum", call=99)]
    profile = make(ops=ops, calls=[call(k * MS, k * MS + US, 1 + k) for k in range(50)])
    answer = api.analyse(profile, "breakdown", whole=True)
    assert answer.rows.select("window_ns", "compute_ns", "comm_hidden_ns").row(0) == (50 * MS, 50 * MS, 0)
    assert [n.code for n in api.analyse(profile, "info").notes if "went on after" in n] == ["rows-impossible"]
    with pytest.raises(GateFailed) as failed:
        verify(profile, [])
    assert failed.value.result is not None
    rows = {r["check"]: r["status"] for r in failed.value.result.rows.to_dicts()}
    assert rows["records"] == "failed"


record = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 2), st.integers(1, 12), st.integers(0, 1))


@given(st.lists(record, min_size=1, max_size=14))
def test_stream_order_equals_brute_force(records: list[tuple[int, int, int, int, int]]):
    """Of ops that begin at different times: those that outlast two later launches of their stream, or one by far."""
    ops: list[Row] = []
    for at, length, stream, launch, device in records:
        start = at * 100 * US
        if all(o["start_ns"] != start for o in ops):
            end = start + length * 100 * US + US
            ops.append({"start_ns": start, "end_ns": end, "stream": stream, "device": device, "correlation": launch})
    ops.sort(key=lambda o: o["start_ns"])
    frame = pl.DataFrame([o | {"proc": 0, "kind": "kernel"} for o in ops])

    def wrong(a: Row) -> bool:
        place = ("stream", "device")
        mine = [b for b in ops if all(a[c] == b[c] for c in place) and b["correlation"] != a["correlation"]]
        later = {b["correlation"] for b in mine}
        later -= {b["correlation"] for b in mine if b["start_ns"] < a["start_ns"]}
        over = {c: min(b["end_ns"] for b in mine if b["correlation"] == c) for c in later}
        outlasted = [c for c in later if over[c] < a["end_ns"] - 10 * US]
        return len(outlasted) > 1 or any(over[c] < a["end_ns"] - MS for c in later)

    found = out_of_order(frame)
    assert (np.zeros(len(ops), dtype=bool) if found is None else found).tolist() == [wrong(a) for a in ops]


def test_one_op_that_outlasts_many():
    n = 100_000
    start = np.arange(n) * 10 * US
    frame = pl.DataFrame(
        {
            "proc": np.zeros(n, np.int32),
            "kind": ["kernel"] * n,
            "device": np.zeros(n, np.int32),
            "stream": (np.arange(n) % 20).astype(np.int32),
            "start_ns": start,
            "end_ns": start + 9 * US,
            "correlation": np.arange(n),
        }
    )
    frame = frame.with_columns(
        end_ns=pl.when(pl.int_range(pl.len()) == n // 2).then(start[-1] + US).otherwise("end_ns")
    )
    found = out_of_order(frame)
    assert found is not None and np.flatnonzero(found).tolist() == [n // 2]


def test_info_counts_ops_that_overlap_as_they_may():
    ops = [*steady(3), op(2 * MS + 900 * US, 4 * MS, "next", call=9), op(4 * MS - US, 5 * MS, call=10)]
    (note,) = [n for n in api.analyse(make(ops=ops), "info").notes if n.code == "ops-overlap"]
    assert note == (
        "rank 0: 1 op begins before the previous one on the stream has ended, as programmatic dependent launch allows:"
        " the earliest is next on stream 7, 100 µs early, 1.1 ms from 2900000 ns"
    )
