"""Why the GPU was idle: every gap split by what kept its next op from running (semantics §6).

A gap ends with an op. Until the op's launch call began the GPU had no work, and the cause is what the launching thread
was doing: each instant takes the innermost CUDA call of that thread, or `host` where it was in none (`gil` where nsys
recorded that the thread waited for the interpreter's lock then). From the launch on, the op was queued.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.accounting.partition import partition
from stepscope.derive.host.gil import lock_waits
from stepscope.derive.rank.cuda_calls import Family, families
from stepscope.derive.rank.data import RankData
from stepscope.intervals import Spans, distinct, union
from stepscope.intervals.arrays import I8, I64, NONE, Mask, numbered, one_of
from stepscope.model.memo import cached_property
from stepscope.model.nesting import nest

CAUSES = ("sync", "alloc", "load", "api", "host", "queue", "tail", "unlinked", "gil")
SYNC, ALLOC, LOAD, API, HOST, QUEUE, TAIL, UNLINKED, GIL = range(len(CAUSES))
#: With these the host has not got to the launch yet, and waits for nothing that the GPU does.
STARVED = (HOST, API, GIL)

#: What calls make the host wait for; all others are `api`.
_CAUSE = {
    Family.DEVICE_SYNC: SYNC,
    Family.STREAM_SYNC: SYNC,
    Family.EVENT_SYNC: SYNC,
    Family.BLOCKING_COPY: SYNC,
    Family.ALLOC: ALLOC,
    Family.FREE: ALLOC,
    Family.LOAD: LOAD,
}
_CAUSE_OF_FAMILY = np.array([_CAUSE.get(family, API) for family in Family], np.int8)


#: Of a piece that is not a thread's time: its range is that of the op which is waited for, or of nothing.
_OF_THE_OP = -2


class Pieces(Struct, frozen=True, dict=True):
    """Stretches of idle time, each with one cause, in time order. Rows of `NONE` mean nothing."""

    start: I64
    end: I64
    cause: I64
    call: I64  # row of the rank's calls that covers it longest; the launch for `queue`
    tid: I64  # the launching thread
    next_op: I64  # row of the rank's ops that ended the gap
    host_range: I64  # row of the rank's ranges that the launching thread was in, of all pieces of STARVED
    data: RankData

    @cached_property
    def within(self) -> I64:
        """Row of the rank's ranges: of the launching thread before the launch, of the launch from then on.

        The host has long moved on by then: a range is that of the op which is waited for, at its launch (semantics §3).
        """
        within = self.host_range.copy()
        rows = np.flatnonzero(within == _OF_THE_OP)
        within[rows] = self.data.range_at(self.tid[rows], self.start[rows])
        ended = rows[self.next_op[rows] != NONE]
        within[ended] = self.data.enclosing(self.next_op[ended])
        return within


def idle_causes(data: RankData, start: int, end: int) -> Pieces:
    """The idle time of [start, end) of the rank's GPU, split by cause; worked out once."""
    return data.once(_idle_causes, start, end)


def _idle_causes(data: RankData, start: int, end: int) -> Pieces:
    return causes(data, partition(data, start, end).idle)


def causes(data: RankData, idle: Spans) -> Pieces:
    """Split idle time by cause. The pieces cover `idle` exactly."""
    n = len(data.start)
    after = np.searchsorted(data.start, idle.end)  # ops are in start order: the first that starts when the gap ends
    ended = after < n
    next_op = np.where(ended, after, NONE)
    launch = np.where(ended, data.launch[np.minimum(after, n - 1)], NONE) if n else np.full(len(idle), NONE, np.int64)
    linked = launch != NONE
    calls = Calls(data)
    launched = np.where(linked, calls.start_of(launch), idle.end)
    split = np.clip(launched, idle.start, idle.end)
    tid = np.where(linked, calls.tid_of(launch), NONE)
    lone = np.where(ended, UNLINKED, TAIL)
    parts = [
        calls.split(idle.start[linked], split[linked], tid[linked], next_op[linked]),
        _plain(split, idle.end, np.full(len(idle), QUEUE), launch, tid, next_op, linked),
        _plain(idle.start, idle.end, lone, launch, tid, next_op, ~linked),
    ]
    joined = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    keep = np.flatnonzero(joined[0] < joined[1])
    rows = keep[np.argsort(joined[0][keep], kind="stable")]
    begin, over, cause, call, thread, ended_by, host_range = (column[rows] for column in joined)
    return Pieces(begin, over, cause, call, thread, ended_by, host_range, data)


#: The columns of some pieces, as `Pieces` has them.
_Columns = tuple[I64, ...]


def _plain(
    start: I64,
    end: I64,
    cause: I64,
    call: I64,
    tid: I64,
    next_op: I64,
    rows: Mask,
) -> _Columns:
    """Pieces that need no cutting: some `rows` of the gaps."""
    columns = [column[rows] for column in (start, end, cause, call, tid, next_op)]
    return *columns, np.full(len(columns[0]), _OF_THE_OP)


def _nothing() -> _Columns:
    return tuple(np.empty(0, np.int64) for _ in range(7))


class Calls:
    """The CUDA calls of a rank as a timeline per thread."""

    def __init__(self, data: RankData) -> None:
        frame = data.calls
        self._data = data
        self._start = frame["start_ns"].to_numpy()
        self._end = frame["end_ns"].to_numpy()
        self._tid = frame["tid"].to_numpy()
        self._cause = call_causes(data)

    def start_of(self, rows: I64) -> I64:
        return self._start[np.maximum(rows, 0)] if len(self._start) else rows

    def tid_of(self, rows: I64) -> I64:
        return self._tid[np.maximum(rows, 0)].astype(np.int64) if len(self._tid) else rows

    def split(self, start: I64, end: I64, tid: I64, next_op: I64) -> _Columns:
        """Cut disjoint stretches, each on a thread, at the edges of that thread's innermost calls."""
        parts: list[_Columns] = []
        for thread in numbered(tid)[0].tolist():
            here = tid == thread
            parts.append(self._on_thread(thread, start[here], end[here], next_op[here]))
        if not parts:
            return _nothing()
        return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))

    def _on_thread(self, thread: int, start: I64, end: I64, next_op: I64) -> _Columns:
        wanted = union(start, end)
        rows = np.flatnonzero(wanted.meets(self._start, self._end) & (self._tid == thread))
        waits = lock_waits(self._data, thread)
        cuts = np.concatenate([self._data.range_edges, waits.start, waits.end])
        cuts = cuts[wanted.contains(cuts)]
        edges = distinct(self._start[rows], self._end[rows], start, end, cuts)
        at = edges[:-1]
        inside = wanted.contains(at)
        at, stop = at[inside], edges[1:][inside]
        zero = np.zeros(len(rows), np.int64)
        innermost = nest(zero, self._start[rows], self._end[rows]).enclosing(np.zeros(len(at), np.int64), at)
        call = np.full(len(at), NONE, dtype=np.int64)
        call[innermost != NONE] = rows[innermost[innermost != NONE]]
        cause = np.where(call != NONE, self._cause[np.maximum(call, 0)] if len(self._cause) else HOST, HOST)
        cause[(cause == HOST) & waits.contains(at)] = GIL
        order = np.argsort(start, kind="stable")
        gap = order[np.searchsorted(start[order], at, side="right") - 1] if len(at) else np.empty(0, np.int64)
        tids = np.full(len(at), thread, dtype=np.int64)
        return _merge((at, stop, cause, call, tids, next_op[gap], self._data.range_at(tids, at)), gap)


def _merge(cut: _Columns, gap: I64) -> _Columns:
    """Join neighbours of one gap with one cause (and, for the host's own time, in one range).

    The call that covers the joined piece longest names it.
    """
    if len(gap) == 0:
        return _nothing()
    start, end, cause, call, tid, next_op, within = cut
    moved = one_of(cause[1:], (HOST, GIL)) & (within[1:] != within[:-1])
    first = np.r_[True, (gap[1:] != gap[:-1]) | (cause[1:] != cause[:-1]) | moved]
    group = np.cumsum(first) - 1
    longest = (
        pl.DataFrame({"group": group, "call": call, "ns": end - start})
        .group_by("group", "call", maintain_order=True)
        .agg(pl.col("ns").sum())
        .sort("group", "ns", descending=[False, True], maintain_order=True)
        .unique("group", keep="first", maintain_order=True)["call"]
        .to_numpy()
    )
    starts = np.flatnonzero(first)
    last = np.r_[starts[1:], len(gap)] - 1
    named = cause[starts], longest, tid[starts], next_op[starts], within[starts]
    return start[starts], end[last], *named


def call_causes(data: RankData) -> I8:
    """What each call of the rank makes the host wait for: SYNC, ALLOC, LOAD or API."""
    return data.once(_call_causes)


def _call_causes(data: RankData) -> I8:
    return _CAUSE_OF_FAMILY[families(data)]
