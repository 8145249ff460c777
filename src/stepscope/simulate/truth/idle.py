"""Idle gaps of a window, cut by cause (semantics §6).

A gap is split at the launch of the op that ends it. Before it, each instant belongs to the call that the launching
thread is in, or to the host; neighbours of one cause are one row, except that the host's own time is one row per range.
A row's call is the one that covers it longest. From the launch on the op is queued, and the range is the launch's.
"""

from __future__ import annotations

import numpy as np

from stepscope.simulate.trace.trace import I64
from stepscope.simulate.truth.facts import Facts, Row, Rows, edges_of
from stepscope.simulate.truth.onerank import Partition

_CAUSE = {
    "cudaStreamSynchronize": "sync",
    "cudaDeviceSynchronize": "sync",
    "cudaMalloc": "alloc",
    "cudaFree": "alloc",
}
_HOST = "host"


def idle_rows(f: Facts, p: Partition) -> Rows:
    """Rows of `idle`, in order of time."""
    edges = p.edges
    first = np.flatnonzero(p.idle & ~np.concatenate([[False], p.idle[:-1]]))
    last = np.flatnonzero(p.idle & ~np.concatenate([p.idle[1:], [False]]))
    start, end = edges[first], edges[last + 1]
    # The window ends with an op, so every gap does too.
    op = np.searchsorted(f.start, end)
    launch = f.launch[op]
    split = np.clip(f.call_start[launch], start, end)
    thread = f.call_thread[launch]
    rows = []
    for t in np.unique(thread).tolist():
        mine = thread == t
        rows += _before(f, t, start[mine], split[mine], op[mine])
        rows += _queued(f, split[mine], end[mine], op[mine])
    return sorted(rows, key=lambda row: int(row["gap_start_ns"]))


def _row(f: Facts, start: int, end: int, cause: str, within: int, call: int, op: int) -> Row:
    return {
        **f.who,
        "gap_start_ns": start,
        "gap_ns": end - start,
        "cause": cause,
        "range": f.text(within),
        "call": f.names[int(f.call_name[call])] if call >= 0 else None,
        "next_op": f.names[int(f.name[op])],
    }


def _queued(f: Facts, start: I64, end: I64, op: I64) -> Rows:
    some = start < end
    start, end, op = start[some], end[some], op[some]
    within = f.range[op]
    return [
        _row(f, a, b, "queue", r, int(f.launch[o]), o)
        for a, b, r, o in zip(start.tolist(), end.tolist(), within.tolist(), op.tolist(), strict=True)
    ]


def _before(f: Facts, thread: int, start: I64, end: I64, op: I64) -> Rows:
    """Time before the launch, cut at the thread's calls and at the edges of ranges."""
    some = start < end
    start, end, op = start[some], end[some], op[some]
    calls = np.flatnonzero(f.call_thread == thread)
    cuts = edges_of(f.call_start[calls], f.call_end[calls], f.range_start[f.own], f.range_end[f.own])
    low, high = np.searchsorted(cuts, start, side="right"), np.searchsorted(cuts, end, side="left")
    n = high - low + 1
    gap = np.repeat(np.arange(len(start)), n)
    nth = np.arange(int(n.sum())) - np.repeat(np.cumsum(n) - n, n)
    padded = np.append(cuts, 0)
    begin = np.where(nth == 0, start[gap], padded[low[gap] + nth - 1])
    stop = np.where(nth == n[gap] - 1, end[gap], padded[np.minimum(low[gap] + nth, len(cuts))])
    before = np.searchsorted(f.call_start[calls], begin, side="right") - 1
    row = calls[np.maximum(before, 0)] if len(calls) else np.zeros(len(begin), np.int64)
    call = np.where((before >= 0) & (f.call_end[row] > begin), row, -1)
    within = f.range_at(thread, begin)
    return _joined(f, begin.tolist(), stop.tolist(), call.tolist(), within.tolist(), op[gap].tolist())


def _joined(f: Facts, begin: list[int], stop: list[int], call: list[int], within: list[int], op: list[int]) -> Rows:
    """Pieces in time order, with neighbours of one cause joined."""
    rows: Rows = []
    held: dict[int, int] = {}
    start, last, cause, inside, ended = 0, 0, "", -1, -1

    def finish(end: int) -> None:
        longest = max(held, key=lambda c: held[c])
        rows.append(_row(f, start, end, cause, inside, longest, ended))

    for a, b, c, r, o in zip(begin, stop, call, within, op, strict=True):
        this = _HOST if c < 0 else _CAUSE.get(f.names[int(f.call_name[c])], "api")
        if not held or o != ended or this != cause or (this == _HOST and r != inside):
            if held:
                finish(last)
            held, start, cause, inside, ended = {}, a, this, r, o
        held[c] = held.get(c, 0) + b - a
        last = b
    if held:
        finish(last)
    return rows


def cause_rows(f: Facts, rows: Rows, window: int) -> Rows:
    """Totals of `idle --by cause`."""
    totals: dict[str, list[int]] = {}
    for row in rows:
        totals.setdefault(row["cause"], []).append(row["gap_ns"])
    sums = [
        {**f.who, "cause": cause, "n": len(ns), "total_ns": sum(ns), "share_pct": 100.0 * sum(ns) / window}
        for cause, ns in totals.items()
    ]
    return sorted(sums, key=lambda row: (-int(str(row["total_ns"])), str(row["cause"])))
