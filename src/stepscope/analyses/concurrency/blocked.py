"""Why an op did not run yet, instant by instant: not launched (and what the host did instead), held, or unknown.

A stretch of time waits for one op, called at L. Before L the host is the reason, named as in `idle`. From L until the
last known dependency of the op has ended it is `stream` or `event`. After that nothing in the trace holds the op:
`unknown` (launch latency, no room on the GPU, an implicit wait for the default stream, an event without a record).
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from stepscope.derive.graph.dependencies import Dependencies
from stepscope.derive.host.idle_causes import CAUSES, TAIL, UNLINKED, Calls
from stepscope.derive.rank.data import RankData
from stepscope.intervals import Spans, intersect, subtract, union
from stepscope.intervals.arrays import I64, NONE

REASONS = (*CAUSES, "stream", "event", "unknown")
STREAM, EVENT, UNKNOWN = range(len(CAUSES), len(REASONS))


class Waits(Struct, frozen=True):
    """Pieces of waiting time, each with one reason: the op waited with, and the op it waited for (NONE if no op)."""

    start: I64
    end: I64
    reason: I64
    op: I64
    holder: I64

    def columns(self) -> tuple[I64, ...]:
        return self.start, self.end, self.reason, self.op, self.holder


def reasons(data: RankData, dependencies: Dependencies, calls: Calls, stretches: Spans, op: I64) -> Waits:
    """Split disjoint stretches, each waiting for `op` (NONE: nothing follows). The pieces cover them exactly."""
    start, end = stretches.start, stretches.end
    followed = op != NONE
    safe = np.maximum(op, 0)
    n = len(data.start)
    launch = np.where(followed, data.launch[safe], NONE) if n else np.full(len(op), NONE, np.int64)
    linked = launch != NONE
    called = np.where(linked, calls.start_of(launch), start)
    called = np.clip(called, start, end)
    holder, by_event = dependencies.latest(data.end)
    held_by = np.where(followed, holder[safe], NONE) if n else np.full(len(op), NONE, np.int64)
    until = np.where(held_by != NONE, data.end[np.maximum(held_by, 0)], start) if n else start
    until = np.clip(until, called, end)
    kind = np.where(by_event[safe], EVENT, STREAM) if n else np.full(len(op), UNKNOWN)
    begin, over, cause, *_, ended_by, _ = calls.split(
        start[linked], called[linked], calls.tid_of(launch[linked]), op[linked]
    )
    rest = np.where(~followed, TAIL, np.where(linked, UNKNOWN, UNLINKED))
    none = np.full(len(op), NONE, dtype=np.int64)
    parts = [
        Waits(begin, over, cause, ended_by, np.full(len(begin), NONE, dtype=np.int64)),
        Waits(called, until, kind, op, held_by),
        Waits(until, end, rest, op, none),
    ]
    columns = [np.concatenate(c) for c in zip(*(p.columns() for p in parts), strict=True)]
    keep = columns[0] < columns[1]
    order = np.argsort(columns[0][keep], kind="stable")
    return Waits(*(c[keep][order] for c in columns))


def standing(data: RankData, dependencies: Dependencies, calls: Calls, ops: I64, spans: Spans) -> list[Waits]:
    """Why `ops`, all of one stream, did not compute in `spans`: one of them ran, or the next could not yet."""
    busy = intersect(spans, union(data.start[ops], data.end[ops]))
    still = subtract(spans, busy)
    running = ops[np.searchsorted(data.start[ops], busy.start, side="right") - 1] if len(ops) else ops
    stream = Waits(busy.start, busy.end, np.full(len(busy), STREAM), running, running)
    return [stream, reasons(data, dependencies, calls, still, next_of(data, ops, still.start))]


def next_of(data: RankData, ops: I64, at: I64) -> I64:
    """The first of `ops` (rows in start order) that starts at each moment or later, NONE where none does."""
    k = np.searchsorted(data.start[ops], at)
    return np.where(k < len(ops), ops[np.minimum(k, len(ops) - 1)], NONE) if len(ops) else np.full(len(at), NONE)
