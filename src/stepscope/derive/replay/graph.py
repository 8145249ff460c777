"""One rank's step as a small graph to replay: runs of ops, and the host's waits for the GPU between them.

A run is a stretch of ops of one stream of which only the last matters to anything else: no event, no wait of the host
and no communication lies within it. It ends `work` after the latest of what it waits for, or `ready` after the host's
last wait returned, whichever is later; both are exact for all its ops at once, so nothing is lost by taking them
together. Between what is waited for and the start there is never more than the usual moment: what else held an op up is
not in the trace, so that a replay is a lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from stepscope.derive.graph.releases import BY_ORDER, Releases, releases
from stepscope.derive.rank.data import COMM, COMPUTE, RankData, ranks_of
from stepscope.derive.replay.change import Change
from stepscope.derive.replay.host import Waits
from stepscope.derive.replay.rewire import rewired
from stepscope.intervals.arrays import F64, I64, NONE, Mask
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


@dataclass
class Runs:
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
    return [_runs(part, data, steps[data.rank], change) for data in ranks_of(part) if data.rank in steps]


def _runs(part: Profile, data: RankData, step: Step, change: Change) -> Runs:
    recorded = releases(data)
    begin, last = step.begin, step.last
    ops = step_ops(data, step)
    ops = ops[np.lexsort((ops, data.stream[ops]))]
    place = np.full(len(data.start), NONE, dtype=np.int64)
    place[ops] = np.arange(len(ops))
    stream, event = (before[ops] for before in rewired(data, recorded, change))
    event = np.where(recorded.why[ops] == BY_ORDER, recorded.source[ops], event)
    inner = _inside(place, stream), _inside(place, event)
    waits = Waits(data, recorded, begin, step.until, change)
    epoch = waits.epoch(ops)
    first = _first(data, ops, inner, epoch, _sources(place, ops, inner, waits.op, last))
    run = np.cumsum(first) - 1
    run_at = np.append(run, [BEFORE, NONE])  # by place; from the back, those that are in no run
    dur = (data.end - data.start)[ops].astype(np.float64) * _factors(part, data, ops, change)
    is_comm = data.role[ops] == COMM
    dur[is_comm] = 0.0
    lag_s = _lag(data, ops, stream, np.full(len(ops), recorded.latency.stream))
    lag_s[np.isin(ops, change.of(change.ops_fused, data.rank))] = 0
    lag_e = _lag(data, ops, event, _event_latency(data, ops, recorded))
    lag_s, lag_e = (
        np.where(at == BEFORE, lag + data.end[np.maximum(of, 0)] - begin, lag)
        for lag, of, at in ((lag_s, stream, inner[0]), (lag_e, event, inner[1]))
    )
    spent = dur + np.where(first, 0, lag_s)
    # From each op's start to the run's end, by sums from the back.
    total = np.cumsum(spent[::-1])[::-1]
    ends = np.r_[np.flatnonzero(first)[1:], len(ops)]
    behind = np.r_[total, 0.0][ends[run]]
    to_end = total - behind - np.where(first, 0, lag_s)
    ready = waits.ready(ops, epoch) + to_end
    at = np.flatnonzero(first)
    reach = np.maximum.reduceat(ready, at) if len(at) else np.empty(0)
    where, behind_event = run_at[inner[0]], run_at[inner[1]]
    comm = np.where(is_comm, ops, NONE)
    waited = _inside(place, waits.op)
    return Runs(
        rank=data.rank,
        begin=begin,
        start=data.start[ops][at],
        after=where[at],
        after_lag=lag_s[at],
        event=behind_event[at],
        event_lag=lag_e[at],
        epoch=epoch[at],
        ready=reach,
        work=np.add.reduceat(spent, at) if len(at) else np.empty(0),
        comm=comm[at],
        dur=(data.end - data.start)[ops][at],
        hidden=_hidden(data, ops[at], comm[at], change),
        wait_return=waits.returned,
        wait_for=run_at[waited],
        wait_lag=np.where(waited == BEFORE, waits.lag + data.end[waits.op] - begin, waits.lag),
        wait_gap=waits.gap,
        tail=waits.tail(step.until),
        goes_on=waits.goes_on(ops, step.until),
        final=_final(where[at], behind_event[at]),
        first_of_several=_is_first_of_several(data, step),
    )


def _is_first_of_several(data: RankData, step: Step) -> bool:
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


def _inside(place: I64, ops: I64) -> I64:
    """Places of ops within the step's; BEFORE for those of an earlier one, NONE for none."""
    at = place[np.maximum(ops, 0)] if len(place) else ops
    return np.where(ops == NONE, NONE, np.where(at == NONE, BEFORE, at))


def _sources(place: I64, ops: I64, inner: tuple[I64, I64], waited: I64, last: int) -> Mask:
    """Ops that something else waits for: a run ends with each."""
    marked = np.zeros(len(ops), dtype=bool)
    for source in (inner[1], inner[0][inner[0] != np.arange(len(ops)) - 1], _inside(place, waited)):
        marked[source[source >= 0]] = True
    marked[place[last]] = True
    return marked


def _first(data: RankData, ops: I64, inner: tuple[I64, I64], epoch: I64, marked: Mask) -> Mask:
    if len(ops) == 0:
        return np.zeros(0, dtype=bool)
    comm = data.role[ops] == COMM
    first = np.ones(len(ops), dtype=bool)
    first[1:] = (data.stream[ops][1:] != data.stream[ops][:-1]) | comm[1:] | comm[:-1] | marked[:-1]
    first[1:] |= (epoch[1:] != epoch[:-1]) | (inner[0][1:] != np.arange(len(ops) - 1))
    first |= inner[1] != NONE
    return first


def _factors(part: Profile, data: RankData, ops: I64, change: Change) -> F64:
    """How much longer each kernel takes."""
    factors = np.ones(len(ops))
    by_name = change.kernel_factor.get(data.rank)
    if by_name:
        ids, of = np.unique(data.name[ops], return_inverse=True)
        factor = np.array([by_name.get(t, 1.0) for t in part.names.gather(ids).to_list()])
        factors = np.where(data.role[ops] == COMPUTE, factor[of.reshape(-1)], 1.0)
    if data.rank in change.op_factor:
        changed, by_op = change.op_factor[data.rank]
        of_op = np.ones(len(data.start))
        of_op[changed] = by_op
        factors = factors * of_op[ops]
    return factors


def _hidden(data: RankData, ops: I64, comm: I64, change: Change) -> Mask:
    hidden: Mask = (comm != NONE) & change.transfers_hidden
    if change.transfers_hidden and change.hidden_stage is not None and len(ops):
        hidden &= (data.stage_of(ops) == change.hidden_stage).to_numpy()
    return hidden


def _lag(data: RankData, ops: I64, before: I64, usual: I64) -> I64:
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
