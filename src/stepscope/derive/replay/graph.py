"""One rank's step as a small graph to replay: runs of ops, and the host's waits for the GPU between them.

A run is a stretch of ops of one stream of which only the last matters to anything else: no event, no wait of the host
and no communication lies within it. It ends `work` after the latest of what it waits for, or `ready` after the host's
last wait returned, whichever is later; both are exact for all its ops at once, so nothing is lost by taking them
together. Between what is waited for and the start there is never more than the usual moment: what else held an op up is
not in the trace, so that a replay is a lower bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from stepscope.derive.graph.releases import BY_ORDER, Releases, forget_releases, releases
from stepscope.derive.rank.at_once import of_each
from stepscope.derive.rank.data import COMM, COMPUTE, RankData, ranks_of
from stepscope.derive.replay.change import Change
from stepscope.derive.replay.host import Waits, forget_waits
from stepscope.derive.replay.rewire import rewired
from stepscope.intervals.arrays import F64, I32, I64, NONE, Mask, by_id, numbered
from stepscope.model.profile import Profile


class Step(NamedTuple):
    """A rank's step in its own time: the host began it, and launched for it `until` then; it ends with op `last`."""

    begin: int
    last: int
    #: null for a span of GPU time, whose ops are those that start in it
    until: int | None
    #: when it began on the GPU: the host may have been ahead, and its ops waited for those of the step before
    gpu_begin: int


#: An op that waited for one of an earlier step, which is as it was recorded.
BEFORE = -2


class Runs(Struct):
    """Runs of one rank, by start; then its waits. Times are the rank's own; indices are within the rank."""

    rank: int
    begin: int
    start: I64  # observed, of the run's first op
    after: I64  # run before it on its stream, NONE where there is none; BEFORE: its lag is from the host's beginning
    after_lag: I64
    event: I64  # run behind the event that it waited for
    event_lag: I64
    epoch: I64  # the host's last wait before its launches, NONE: since the beginning
    ready: F64  # from that wait's return to the end, were the launches all that matters
    work: F64
    comm: I64  # the op, for communication; NONE for all other runs
    dur: I64  # of a communication, as recorded
    hidden: Mask
    wait_return: I64
    wait_for: I64  # run
    wait_lag: I64
    wait_gap: F64  # host time since the wait before it (or the beginning)
    tail: float  # host time from the last wait (or the beginning) to the end of the host's step; 0 of a span
    goes_on: bool  # the host launched after its last wait: it may begin the next step before this one is over
    final: I64  # runs that nothing of the step follows: it is over when all of them are
    first_of_several: bool  # the capture begins with the step, and goes on after it

    def after_such_a_step(self, ahead_ns: float) -> Runs:
        """As if a step like it came before, whose host was so far ahead of its end: no op starts before that end."""
        alone = self.after == NONE
        lag = np.where(alone, round(max(ahead_ns, 0.0)), self.after_lag)
        return replace(self, after=np.where(alone, BEFORE, self.after), after_lag=lag)


def runs(part: Profile, steps: dict[int, Step], change: Change) -> list[Runs]:
    """The runs of each rank of this part that has a step."""
    changed = [data for data in ranks_of(part) if data.rank in steps]
    return of_each(part, changed, lambda data: _runs(part, data, steps[data.rank], change))


def forget(data: RankData) -> None:
    """Give back what replays of the rank's steps keep: they take most of the memory of a diagnosis."""
    data.forget(_recorded_order, _recorded_host)
    forget_waits(data)
    forget_releases(data)


class _Order(NamedTuple):
    """Ops of the step, stream by stream: what each comes after, and how soon after it."""

    ops: I64
    place: I32  # by op of the rank: where it is among these
    before: I32  # the op before it on its stream
    took: F64  # none for communication, which ends when it is through
    comm: Mask
    #: what comes before on the stream, and behind an event: places among these, BEFORE or NONE
    stream: I32
    event: I32
    stream_lag: I64
    event_lag: I64


class _Hosted(NamedTuple):
    """The host of the step: its waits; and of each op, in order, the last wait before it and when it is ready."""

    waits: Waits
    epoch: I64
    ready: F64


def _recorded_order(data: RankData, step: Step) -> _Order:
    return _order(data, step, releases(data).stream_before, releases(data).event_before)


def _order(data: RankData, step: Step, stream_before: I32 | I64, event_before: I32 | I64) -> _Order:
    recorded = releases(data)
    ops = step_ops(data, step)
    ops = ops[by_id(data.stream[ops])]
    place = np.full(len(data.start), NONE, dtype=np.int32)
    place[ops] = np.arange(len(ops))
    before, behind = stream_before[ops], event_before[ops]
    behind = np.where(recorded.why[ops] == BY_ORDER, recorded.source[ops], behind)
    stream, event = _inside(place, before), _inside(place, behind)
    lag_s = _lag(data, ops, before, np.full(len(ops), recorded.latency.stream))
    lag_e = _lag(data, ops, behind, _event_latency(data, ops, recorded))
    for at, of, lag in ((stream, before, lag_s), (event, behind, lag_e)):
        earlier = np.flatnonzero(at == BEFORE)
        lag[earlier] += data.end[of[earlier]] - step.begin
    comm = data.role[ops] == COMM
    took = np.where(comm, 0.0, (data.end - data.start)[ops])
    return _Order(ops, place, before.astype(np.int32), took, comm, stream, event, lag_s, lag_e)


def _recorded_host(data: RankData, step: Step) -> _Hosted:
    return _hosted(data, step, Change())


def _hosted(data: RankData, step: Step, change: Change) -> _Hosted:
    ops = data.once(_recorded_order, step).ops  # the same in every order
    waits = Waits(data, releases(data), step.begin, step.until, change)
    epoch = waits.epoch(ops)
    return _Hosted(waits, epoch, waits.ready(ops, epoch))


def _fused(data: RankData, order: _Order, begin: int, ops: I64) -> I64:
    """Lags behind the op before on the stream, with none for these ops."""
    at = order.place[ops]
    at = at[at != NONE]
    lag = order.stream_lag.copy()
    lag[at] = np.where(order.stream[at] == BEFORE, data.end[np.maximum(order.before[at], 0)] - begin, 0)
    return lag


def _runs(part: Profile, data: RankData, step: Step, change: Change) -> Runs:
    """The runs of one rank. What the change leaves as it was is worked out once per step."""
    begin, last = step.begin, step.last
    otherwise = rewired(data, change)
    order = data.once(_recorded_order, step) if otherwise is None else _order(data, step, *otherwise)
    host = _hosted(data, step, change) if change.is_on_host(data.rank) else data.once(_recorded_host, step)
    ops, place, waits, epoch = order.ops, order.place, host.waits, host.epoch
    first = _first(data, order, epoch, _sources(place, order, waits.op, last))
    run = np.cumsum(first) - 1
    run_at = np.append(run, [BEFORE, NONE])  # by place; from the back, those that are in no run
    fused = change.of(change.ops_fused, data.rank)
    lag_s = _fused(data, order, begin, fused) if len(fused) else order.stream_lag
    spent = _took(part, data, order, change) + np.where(first, 0, lag_s)
    # From each op's start to the run's end, by sums from the back.
    total = np.cumsum(spent[::-1])[::-1]
    at = np.flatnonzero(first)
    behind = np.r_[total, 0.0][np.r_[at[1:], len(ops)][run]]
    to_end = total - behind - np.where(first, 0, lag_s)
    ready = host.ready + to_end
    reach = np.maximum.reduceat(ready, at) if len(at) else np.empty(0)
    after, behind_event = run_at[order.stream[at]], run_at[order.event[at]]
    comm = np.where(order.comm[at], ops[at], NONE)
    waited = _inside(place, waits.op)
    return Runs(
        rank=data.rank,
        begin=begin,
        start=data.start[ops[at]],
        after=after,
        after_lag=lag_s[at],
        event=behind_event,
        event_lag=order.event_lag[at],
        epoch=epoch[at],
        ready=reach,
        work=np.add.reduceat(spent, at) if len(at) else np.empty(0),
        comm=comm,
        dur=(data.end - data.start)[ops[at]],
        hidden=_hidden(data, ops[at], comm, change),
        wait_return=waits.returned,
        wait_for=run_at[waited],
        wait_lag=np.where(waited == BEFORE, waits.lag + data.end[waits.op] - begin, waits.lag),
        wait_gap=waits.gap,
        tail=waits.tail(step.until),
        goes_on=waits.goes_on(ops, step.until),
        final=_final(after, behind_event),
        first_of_several=data.once(_is_first_of_several, step),
    )


def _is_first_of_several(data: RankData, step: Step) -> bool:
    """Whether the capture begins with the step, and goes on after it."""
    launched = data.launched_at[data.launch != NONE]
    return step.until is not None and bool((launched >= step.until).any()) and not bool((launched < step.begin).any())


def step_ops(data: RankData, step: Step) -> I64:
    """Ops that were launched in the step; those without a launch, and of a span, by GPU time."""
    in_time = (data.start >= step.gpu_begin) & (data.end <= data.end[step.last])
    if step.until is None:
        return np.flatnonzero(in_time).astype(np.int64)
    launched = (data.launched_at >= step.begin) & (data.launched_at < step.until)
    return np.flatnonzero(np.where(data.launch != NONE, launched, in_time)).astype(np.int64)


def _final(after: I64, event: I64) -> I64:
    """Runs that no other comes after: were the last sooner, the step would still end with the others."""
    followed = np.zeros(len(after), dtype=bool)
    for before in (after, event):
        followed[before[before >= 0]] = True
    return np.flatnonzero(~followed)


def _inside(place: I32, ops: I32 | I64) -> I32:
    """Places of ops within the step's; BEFORE for those of an earlier one, NONE for none."""
    at = place[np.maximum(ops, 0)] if len(place) else ops.astype(np.int32)
    return np.where(ops == NONE, NONE, np.where(at == NONE, BEFORE, at)).astype(np.int32, copy=False)


def _sources(place: I32, order: _Order, waited: I64, last: int) -> Mask:
    """Ops that something else waits for: a run ends with each."""
    marked = np.zeros(len(order.ops), dtype=bool)
    apart = order.stream[order.stream != np.arange(len(order.ops)) - 1]
    for source in (order.event, apart, _inside(place, waited)):
        marked[source[source >= 0]] = True
    if place[last] != NONE:  # cut by the edge of a span
        marked[place[last]] = True
    return marked


def _first(data: RankData, order: _Order, epoch: I64, marked: Mask) -> Mask:
    if len(order.ops) == 0:
        return np.zeros(0, dtype=bool)
    stream, comm = data.stream[order.ops], order.comm
    first: Mask = order.event != NONE
    first[0] = True
    first[1:] |= (stream[1:] != stream[:-1]) | comm[1:] | comm[:-1] | marked[:-1]
    first[1:] |= (epoch[1:] != epoch[:-1]) | (order.stream[1:] != np.arange(len(stream) - 1))
    return first


def _took(part: Profile, data: RankData, order: _Order, change: Change) -> F64:
    """How long each kernel takes; communication, none of its own."""
    by_name = change.kernel_factor.get(data.rank)
    if not by_name and data.rank not in change.op_factor:
        return order.took
    ops = order.ops
    factors = np.ones(len(ops))
    if by_name:
        ids, of = numbered(data.name[ops])
        factor = np.array([by_name.get(t, 1.0) for t in part.names.gather(ids).to_list()])
        factors = np.where(data.role[ops] == COMPUTE, factor[of], 1.0)
    if data.rank in change.op_factor:
        changed, by_op = change.op_factor[data.rank]
        of_op = np.ones(len(data.start))
        of_op[changed] = by_op
        factors = factors * of_op[ops]
    return np.where(order.comm, 0.0, order.took * factors)


def _hidden(data: RankData, ops: I64, comm: I64, change: Change) -> Mask:
    hidden: Mask = (comm != NONE) & change.transfers_hidden
    if change.transfers_hidden and change.hidden_stage is not None and len(ops):
        hidden &= (data.stage_of(ops) == change.hidden_stage).to_numpy()
    return hidden


def _lag(data: RankData, ops: I64, before: I32 | I64, usual: I64) -> I64:
    """From the op before to the start: as recorded, but no more than usual; less than none where the two overlap."""
    if len(ops) == 0:
        return ops
    gap = np.where(before != NONE, data.start[ops] - data.end[np.maximum(before, 0)], 0)
    return np.minimum(gap, usual)


def _event_latency(data: RankData, ops: I64, recorded: Releases) -> I64:
    usual = np.full(len(ops), recorded.latency.any_event, dtype=np.int64)
    for stream, ns in recorded.latency.event.items():
        usual[data.stream[ops] == stream] = ns
    return usual
