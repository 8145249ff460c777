"""GPU ops that cannot be: what goes on while later ops of its stream begin and end, or ends long after the capture did.

A stream runs its launches in order. A kernel may begin while the one before it still runs, and even be over before it
(programmatic dependent launch), and nodes of one graph may run side by side; but what comes after waits for both. Of
records that say otherwise, the one that goes on too long has a wrong end.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl

from stepscope.files import budget
from stepscope.intervals.arrays import I64, Mask
from stepscope.model.threshold import Threshold

#: Older traces round to whole microseconds, and clocks of copies and kernels differ by some more.
_ROUNDING_NS = 10_000
_PREFETCH = Threshold(
    1000.0,
    "µs",
    "how much longer than the one launch behind it an op may run",
    ("tests/model/test_stream_order.py",),
)
_LEAST_TAIL = Threshold(
    100_000.0,
    "µs",
    "how long after the end of everything else an op may end at least, the time that it ran already",
    ("tests/model/test_stream_order.py",),
)
_MOST_TAIL = Threshold(
    1_000_000.0,
    "µs",
    "and at most",
    ("tests/model/test_stream_order.py",),
)
_MANY = Threshold(
    100,
    "ops",
    "without any record of the host, an op is too long only beside so many others",
    ("tests/model/test_stream_order.py",),
)
_TIMES = Threshold(
    10,
    "times the time of all others",
    "and only where it takes so long",
    ("tests/model/test_stream_order.py",),
)

#: What looking at all rows at once takes, per row.
_BYTES = 64


def out_of_order(ops: pl.DataFrame, context: pl.Series | None = None) -> Mask | None:
    """Ops that go on after two later launches of their stream are over, or long after one; None where none do.

    Rows are in order of process and start. `context` tells apart streams of several contexts with one id.
    """
    if budget.roomy(_BYTES * ops.height):
        return _out_of_order(ops, context)
    process = ops["proc"].to_numpy()
    bounds = [0, *(np.flatnonzero(process[1:] != process[:-1]) + 1).tolist(), ops.height]
    masks: dict[int, Mask] = {}
    for lo, hi in pairwise(bounds):
        of_process = _out_of_order(ops[lo:hi], None if context is None else context[lo:hi])
        masks |= {} if of_process is None else {lo: of_process}
    if not masks:
        return None
    mask = np.zeros(ops.height, dtype=bool)
    for lo, of_process in masks.items():
        mask[lo : lo + len(of_process)] = of_process
    return mask


def _out_of_order(ops: pl.DataFrame, context: pl.Series | None) -> Mask | None:
    ordered = _on_a_stream(ops)
    rows = None if ordered.all() else np.flatnonzero(ordered)
    if (ops.height if rows is None else len(rows)) < 2:
        return None
    columns = [ops[c] for c in ("proc", "device", "stream")]
    columns += [] if context is None else [context.fill_null(-1)]
    columns = columns if rows is None else [c.gather(rows) for c in columns]
    stream = _codes(columns)
    order = np.argsort(stream, kind="stable")
    bounds = np.flatnonzero(np.diff(stream[order], prepend=-1, append=-1))
    start, end = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    outlasting = []
    for lo, hi in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        mine = order[lo:hi] if rows is None else rows[order[lo:hi]]
        over = end[mine]
        earliest = np.minimum.accumulate(over[::-1])[::-1]  # the first end from each op on
        if (over - earliest > _ROUNDING_NS).any():
            launch = ops["correlation"].gather(mine).to_numpy()
            outlasting.append(mine[_outlasting(start[mine], over, launch)])
    every = np.concatenate(outlasting) if outlasting else np.empty(0, np.int64)
    if not len(every):
        return None
    mask = np.zeros(ops.height, dtype=bool)
    mask[every] = True
    return mask


def _on_a_stream(ops: pl.DataFrame) -> Mask:
    """Ops whose stream and launch are known. AMD's copies on stream 0 are those of all streams."""
    copies = ~ops["kind"].is_in(["kernel", "graph"]) & (ops["stream"] == 0)
    linked = ops["stream"].is_not_null() & ops["correlation"].is_not_null() & ~copies
    return linked.fill_null(False).to_numpy()


def _codes(columns: list[pl.Series]) -> I64:
    """A small number for each combination of values."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values = column.fill_null(-1).to_numpy().astype(np.int64)
        low, high = int(values.min()), int(values.max())
        if low == high:
            continue
        near = high - low < 1 << 16
        values = values - low if near else np.unique(values, return_inverse=True)[1].reshape(-1)
        code = code * (int(values.max()) + 1) + values
        if int(code.max()) >= 1 << 40:
            code = np.unique(code, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return code.astype(np.int16) if int(code.max()) < 1 << 15 else code


def _outlasting(start: I64, end: I64, launch: I64) -> Mask:
    """Of the ops of one stream in order of start: those that go on after launches that began later are over."""
    _, of = np.unique(launch, return_inverse=True)
    of = of.reshape(-1)
    n = int(of.max()) + 1
    last = np.iinfo(np.int64).max
    first, over = np.full(n, last), np.full(n, last)
    np.minimum.at(first, of, start)
    np.minimum.at(over, of, end)
    longest = np.zeros(n, dtype=np.int64) - last
    np.maximum.at(longest, of, end)
    order = np.lexsort((-longest, first))  # of launches that begin together, the longer one is the earlier
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    one = np.append(np.minimum.accumulate(over[order][::-1])[::-1], last)
    # The second to be over, from each launch on: the later of it and the first of those behind it, or one of theirs.
    two = np.append(np.minimum.accumulate(np.maximum(over[order], one[1:])[::-1])[::-1], last)
    nth = np.maximum(place[of] + 1, np.searchsorted(first[order], start))
    return (two[nth] < end - _ROUNDING_NS) | (one[nth] < end - _PREFETCH.ns)


def too_long(start: I64, end: I64) -> Mask | None:
    """Ops that end long after everything else on the GPU has begun: the host must tell whether they can be."""
    begun = int(start.max())
    tail = _tail(start)
    late = (end > begun + tail) & (end - start > tail)
    return late if late.any() and np.count_nonzero(late) * 2 <= len(late) else None


def beyond(start: I64, end: I64, late: Mask, host_end: int | None) -> Mask:
    """Of these `late` ops, those that end long after the last record of the host; without any, the longest by far."""
    if host_end is not None:
        return late & (end > host_end + _tail(start))
    others = ~late
    if np.count_nonzero(others) < _MANY.count:
        return np.zeros(len(late), dtype=bool)
    span = int(end[others].max()) - int(start[others].min())
    return late & (end - start > _TIMES.count * span + _MOST_TAIL.ns)


def _tail(start: I64) -> int:
    return min(max(int(start.max()) - int(start.min()), _LEAST_TAIL.ns), _MOST_TAIL.ns)
