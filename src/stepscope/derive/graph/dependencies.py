"""What an op had to wait for: the op before it on its stream, the op behind an event that its stream waited for.

A stream is a sequence in the order of the host's calls: ops, records of events, waits for events. A record is complete
when everything before it on its stream is, a wait when its record is; so an event stands for the op that ends last
among all that lies behind it, through any number of streams that only pass events on (as NCCL's do). Waits constrain
the next op of their stream. An op that "ended" after its dependant started did not hold it up; in a replay it still
comes first (`order`). What the source itself tells (`told`) comes before all that: of nodes of CUDA graphs instead of
the order of streams, of other ops beside it.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.graph.told import Told, told
from stepscope.derive.rank.data import RankData
from stepscope.derive.rank.events import record_of, records_of
from stepscope.intervals.arrays import I64, NONE, Mask, in_order

_OP, _RECORD, _WAIT = range(3)


class Dependencies(Struct, frozen=True):
    """Per op of the rank: the op that ends last before it on its stream, and behind the events that it waited for.

    Of a node of a graph whose dependencies are told: the node that ended last among those it depends on, as `stream`
    where it ran on the same stream, else as `event`.
    """

    stream: I64
    event: I64
    #: waits for events whose record is not in the trace
    unresolved: int
    #: the op before it on its stream, even if that still ran when this one started, as dependent launches do
    order: I64
    #: what else it comes after in a replay: as `event`; of a node of a graph, another node that it depends on
    beside: I64
    #: ops of which the source tells what they waited for, and whether it tells it of ops outside of graphs too
    waited: Mask
    told_beside_streams: bool

    def latest(self, end: I64) -> tuple[I64, Mask]:
        """The one of the two that ends last (NONE without either), and whether that is the event's."""
        none = np.iinfo(np.int64).min
        last = [
            np.where(d != NONE, end[np.maximum(d, 0)] if len(end) else none, none) for d in (self.stream, self.event)
        ]
        by_event: Mask = (self.event != NONE) & (last[1] > last[0])
        return np.where(by_event, self.event, self.stream), by_event


def dependencies(data: RankData, syncs: pl.DataFrame, streams: I64 | None = None) -> Dependencies:
    """Dependencies of every op of the rank, from what the source tells, stream order and `syncs`.

    `streams` puts ops on other streams.
    """
    n = len(data.start)
    given = told(data)
    of_op = data.stream.astype(np.int64) if streams is None else streams
    recorded, waiting = (_with_event(syncs, kind) for kind in ("record", "stream_wait"))
    records, waits = syncs[recorded], syncs[waiting]
    record = (records_of(data) if syncs is data.syncs else record_of(syncs))[waiting]
    of_wait = np.where(record != NONE, np.searchsorted(recorded, record), NONE)
    # Ops by end: the later op has the higher place, so that "ends last" is a running maximum of places.
    by_end = data.by_end
    place = np.empty(n, np.int64)
    place[by_end] = np.arange(n)

    stream = np.concatenate([of_op, *(_column(f, "stream") for f in (records, waits))])
    time = np.concatenate([_issued(data, of_op), *(_column(f, "start_ns") for f in (records, waits))])
    kind = np.repeat([_OP, _RECORD, _WAIT], [n, records.height, waits.height])
    start = np.concatenate([data.start, np.zeros(records.height + waits.height, np.int64)])
    sequence = in_order(stream, time, kind, start)
    stream, kind = stream[sequence], kind[sequence]
    row = sequence - np.array([0, n, n + records.height])[kind]  # row within the op, record or wait table
    segment = np.cumsum(np.r_[False, stream[1:] != stream[:-1]]) if len(stream) else stream
    lift = _lift(segment)
    is_op, is_record, is_wait = (kind == k for k in (_OP, _RECORD, _WAIT))
    value = np.full(len(sequence), NONE, dtype=np.int64)
    value[is_op] = given.whole(place)[row[is_op]]
    behind = np.full(records.height, NONE, dtype=np.int64)
    recorded_here = of_wait[row[is_wait]] != NONE
    while True:  # each round passes events on through one more stream
        reached = _running_max(value, lift)
        behind[row[is_record]] = reached[is_record]
        passed = np.where(recorded_here, behind[of_wait[row[is_wait]]] if records.height else NONE, NONE)
        if np.array_equal(passed, value[is_wait]):
            break
        value[is_wait] = passed

    before = _shifted(_running_max(np.where(is_op, value, NONE), lift), segment)
    # Waits count from the op before them on: each op begins a stretch of its own.
    begins = np.r_[False, is_op[:-1] | (segment[1:] != segment[:-1])] if len(sequence) else is_op
    waited = _running_max(np.where(is_wait, value, NONE), _lift(np.cumsum(begins)))
    by_stream, by_event = (np.full(n, NONE, dtype=np.int64) for _ in range(2))
    by_stream[row[is_op]], by_event[row[is_op]] = before[is_op], waited[is_op]
    order, event = (_ops_at(by_end, places) for places in given.passed_on(by_stream, by_event, place, of_op))
    held, event = (np.where(_over(data, op), op, NONE) for op in (order, event))
    beside = event.copy()
    _of_graphs(data, given, place, of_op, (held, event, order, beside))
    unresolved = int((of_wait == NONE).sum())
    return Dependencies(held, event, unresolved, order, beside, given.waited, given.beside_streams)


def _ops_at(by_end: I64, places: I64) -> I64:
    return np.where(places != NONE, by_end[np.maximum(places, 0)], NONE) if len(by_end) else places


def _over(data: RankData, before: I64) -> Mask:
    """Whether what an op comes after was over when it started."""
    over: Mask = (before == NONE) | (data.end[np.maximum(before, 0)] <= data.start) if len(before) else before == NONE
    return over


def _of_graphs(data: RankData, given: Told, place: I64, stream: I64, columns: tuple[I64, I64, I64, I64]) -> None:
    """What nodes of graphs depend on, written over what their streams say."""
    if not len(given.nodes):
        return
    by_stream, by_event, order, beside = columns
    nodes = np.unique(given.op[given.graph])
    over = data.end[given.after] <= data.start[given.op]
    for chosen, own, other in ((over, by_stream, by_event), (np.ones_like(over), order, beside)):
        last, next_to_last = (found[nodes] for found in given.latest_two(place, chosen))
        same = stream[nodes] == stream[np.maximum(last, 0)]
        if own is by_stream:  # only one can have held it up
            next_to_last = np.full(len(nodes), NONE)
        own[nodes], other[nodes] = np.where(same, last, next_to_last), np.where(same, next_to_last, last)


def _issued(data: RankData, stream: I64) -> I64:
    """When each op was issued; without a launch record, no later than what its stream ran after it, in order."""
    if not data.unlinked:
        return data.launched_at
    order = in_order(stream, data.start)
    linked = data.launch[order] != NONE
    never = np.iinfo(np.int64).max
    launched_at = np.where(linked, data.launched_at[order], never)
    lift = np.flatnonzero(np.r_[stream[order][1:] != stream[order][:-1], True])  # the last op of each stream
    until = np.empty(len(order), np.int64)
    for first, last in zip(np.r_[0, lift[:-1] + 1].tolist(), lift.tolist(), strict=True):
        until[first : last + 1] = np.minimum.accumulate(launched_at[first : last + 1][::-1])[::-1]
    issued = data.launched_at.copy()
    issued[order] = np.where(linked, data.launched_at[order], np.minimum(until, data.start[order]))
    return issued


def _with_event(syncs: pl.DataFrame, kind: str) -> I64:
    """Rows of one kind that name an event."""
    return np.flatnonzero(((syncs["kind"] == kind) & syncs["event"].is_not_null()).to_numpy())


def _column(frame: pl.DataFrame, name: str) -> I64:
    values: I64 = frame[name].cast(pl.Int64).to_numpy()
    return values


def _lift(segment: I64) -> I64:
    """By how much values are raised so that those of a segment are above those of all before it; segments ascend."""
    lift: I64 = segment * (len(segment) + 2)
    return lift


def _running_max(value: I64, lift: I64) -> I64:
    """Running maximum that begins anew in each segment; values are NONE or more."""
    raised = value + lift
    np.maximum.accumulate(raised, out=raised)
    raised -= lift
    return raised


def _shifted(value: I64, segment: I64) -> I64:
    """The value before each place, NONE at the start of a segment."""
    if len(value) == 0:
        return value
    before: I64 = np.r_[NONE, value[:-1]]
    before[np.r_[True, segment[1:] != segment[:-1]]] = NONE
    return before
