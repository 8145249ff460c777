"""What each op waited for within its rank: the op before it on its stream, an event's op, or its launch.

All three must be over before an op can start, and each takes a moment to be noticed: a launch after its call returns, a
kernel after the one before it. Those moments are medians over the ops for which nothing else can have mattered; an op
waited for whatever would have let it go last. A launch in turn waited for the host, and the host, where it had waited
for the GPU before (`host.waits`), for that op.

A state is an op and whether its execution counts: `2·op + 1` is its end, `2·op` its start (the host went on when it
started). `next_state` leads from an op's start to the state that it waited for, NONE where the rank's time begins.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from stepscope.derive.graph.dependencies import dependencies
from stepscope.derive.host.waits import HostWaits, host_waits
from stepscope.derive.rank.data import COMM, RankData
from stepscope.intervals.arrays import I32, I64, NONE, Mask, by_id, numbered, places
from stepscope.model.note import Note

BY_STREAM, BY_EVENT, BY_LAUNCH, BY_ORDER, BY_NOTHING = range(5)
_NEVER = np.iinfo(np.int64).min // 4


class Latency(Struct, frozen=True):
    """How long it usually takes from what an op waited for to its start."""

    launch: int
    stream: int
    #: the same of launches with dependent ones, which wait longer: what is later than that waited for something else
    late: int
    event: dict[int, int]  # by waiting stream
    any_event: int


class Releases(Struct, frozen=True):
    """Per op of a rank. `wait` is the host's last wait before the launch, NONE where there is none."""

    why: npt.NDArray[np.int8]
    source: I32  # op, for all but BY_LAUNCH and BY_NOTHING
    wait: I32
    stuck: Mask  # the wait is the launch's own: the queue was full
    next_state: I64
    waits: HostWaits
    stream_before: I32
    event_before: I32
    latency: Latency
    unresolved: int = 0
    inferred: int = 0
    notes: list[Note] = field(default_factory=list)


def releases(data: RankData) -> Releases:
    """The releases of a rank; computed once per rank."""
    return data.once(_releases)


def forget_releases(data: RankData) -> None:
    """Give back what is known of each op: who goes on asks of a few ranks, or of other steps."""
    data.forget(_releases, launching, _nearest, in_runs)


def _releases(data: RankData) -> Releases:
    links = dependencies(data, data.syncs)
    n = len(data.start)
    stream, event = links.stream, links.event
    s_end, e_end = (np.where(d != NONE, data.end[np.maximum(d, 0)] if n else _NEVER, _NEVER) for d in (stream, event))
    linked = data.launch != NONE
    call_start, call_end = np.full(n, _NEVER), np.full(n, _NEVER)
    call_start[linked], call_end[linked] = (
        data.calls[c].to_numpy()[data.launch[linked]] for c in ("start_ns", "end_ns")
    )
    lat = _latency(data, links.order, stream, s_end, e_end, call_start, call_end)
    # An op that started before its call returned (as a synchronous copy does) was launched some time within the call.
    launched = np.where(call_end <= data.start, call_end + lat.launch, call_start)
    by_event = np.full(n, lat.any_event)
    for s, ns in lat.event.items():
        by_event[data.stream == s] = ns
    ready = np.stack([np.minimum(t, data.start) for t in (s_end + lat.stream, e_end + by_event, launched)])
    why = ready.argmax(axis=0).astype(np.int8) if n else np.empty(0, np.int8)
    best = ready.max(axis=0) if n else np.empty(0, np.int64)
    source = np.where(why == BY_STREAM, stream, np.where(why == BY_EVENT, event, NONE))
    events = bool((data.syncs["kind"] == "record").any()) or links.told_beside_streams
    inferred = _by_order(data, why, source, best, lat, events, links.waited)
    waits = host_waits(data)
    wait, stuck = wait_of(data, waits)
    state = np.where(source != NONE, 2 * source + 1, NONE)
    hosted = (why == BY_LAUNCH) & (wait != NONE)
    at = np.maximum(wait[hosted], 0)
    state[hosted] = 2 * waits.op[at] + ~waits.start[at]
    odd = _leads_ahead(data, state)
    # Clocks of host and GPU can disagree by a little: then the stream's order, which the GPU's clock alone tells.
    why[odd], source[odd] = np.where(stream[odd] != NONE, BY_STREAM, BY_NOTHING), stream[odd]
    state[odd] = np.where(stream[odd] != NONE, 2 * stream[odd] + 1, NONE)
    rows, last, before, beside = (of.astype(np.int32) for of in (source, wait, links.order, links.beside))
    return Releases(why, rows, last, stuck, state, waits, before, beside, lat, links.unresolved, inferred)


def _latency(
    data: RankData, order: I64, stream: I64, s_end: I64, e_end: I64, call_start: I64, call_end: I64
) -> Latency:
    linked = call_start > _NEVER
    linked &= call_end <= data.start
    # A dependent launch begins while the op before it still runs: it did wait in its stream, and says nothing of this.
    free = (order == NONE) | (data.end[np.maximum(order, 0)] <= call_start) if len(order) else linked
    alone = linked & (s_end <= call_start) & (e_end <= call_start)
    launch, late = (_median((data.start - call_end)[chosen]) for chosen in (alone & free, alone))
    ready = np.where(linked, call_end + launch, np.iinfo(np.int64).max)
    began = np.where(stream != NONE, data.start[np.maximum(stream, 0)] if len(stream) else _NEVER, _NEVER)
    alone = (stream != NONE) & (ready <= s_end) & (e_end <= began)
    after = _median((data.start - s_end)[alone])
    waited = (e_end > _NEVER) & (ready <= e_end) & (s_end + after <= e_end)
    lag = data.start - e_end
    streams = numbered(data.stream[waited])[0].tolist()
    events = {s: _median(lag[waited & (data.stream == s)]) for s in streams}
    return Latency(launch, after, late, events, _median(lag[waited]))


def _median(values: I64) -> int:
    return int(np.median(values)) if len(values) else 0


def _by_order(
    data: RankData, why: npt.NDArray[np.int8], source: I64, best: I64, lat: Latency, events: bool, mask: Mask
) -> int:
    """Where nothing recorded explains a start: the op of the rank that ended last before it. Returns how many.

    Without event records that is any op that started later than its stream and its launch explain, unless the source
    tells what it waited for; with them, only ops that have neither a launch record nor an op before them.
    """
    n = len(why)
    if n == 0:
        return 0
    bare = best <= _NEVER // 2
    late = bare if events else bare | (~mask & (data.start > best + max(lat.late, lat.stream, 0)))
    ops = np.flatnonzero(late)
    by_end = data.by_end
    k = np.searchsorted(data.end[by_end], data.start[ops], side="right") - 1
    other = np.where(k >= 0, by_end[np.maximum(k, 0)], NONE)
    # Only what ended after everything that is known to have mattered, and on another stream, says anything new.
    real = (other != NONE) & (other != ops) & (data.end[np.maximum(other, 0)] > best[ops])
    real &= bare[ops] | (data.stream[np.maximum(other, 0)] != data.stream[ops])
    why[ops[real]], source[ops[real]] = BY_ORDER, other[real]
    alone = ops[~real & bare[ops]]
    why[alone], source[alone] = BY_NOTHING, NONE
    return int(real.sum())


def wait_of(data: RankData, waits: HostWaits) -> tuple[I64, Mask]:
    """By op: the last wait of the host at or before its launch, NONE without one; and whether it is the launch's own.

    Threads of a process hand work to each other (forward and backward passes do): a wait of another thread counts too,
    unless the launching thread made calls meanwhile, which shows that it did not wait with it.
    """
    n = len(data.start)
    wait, stuck = np.full(n, NONE, dtype=np.int64), np.zeros(n, dtype=bool)
    if len(waits.call) == 0 or data.calls.height == 0:
        return wait, stuck
    start, end = (data.calls[c].to_numpy() for c in ("start_ns", "end_ns"))
    tid = data.calls["tid"].to_numpy()
    by = tid[waits.call]
    for thread in data.once(launching):
        other = by != thread.tid
        own = start[tid == thread.tid]
        others = np.flatnonzero(other)
        made = np.searchsorted(own, end[waits.call[others]]) - np.searchsorted(own, start[waits.call[others]])
        other[others] = made > 0
        usable = np.flatnonzero(~other)
        if len(usable) == 0:
            continue
        at, own_wait = waits.call[usable], waits.start[usable]
        k = places(at, thread.launch) - 1
        last = np.maximum(k, 0)
        # A synchronous copy waits for its own op, whose launch depends on the wait before.
        k -= (at[last] == thread.launch) & ~own_wait[last]
        last = np.maximum(k, 0)
        itself = at[last] == thread.launch
        # A wait that was not over yet (of another thread) did not hold this launch up.
        hit = (k >= 0) & ((end[at][last] <= start[thread.launch]) | itself)
        wait[thread.ops[hit]] = usable[last[hit]]
        stuck[thread.ops] = hit & own_wait[last] & itself
    return wait, stuck


class _Thread(Struct, frozen=True):
    """A thread that launches: its ops, and the call that launched each."""

    tid: int
    ops: I64
    launch: I64


def launching(data: RankData) -> list[_Thread]:
    """Threads that launch; ops in the order of their launches, in which they are looked up in one go."""
    linked, _ = data.by_launch
    of_thread = data.calls["tid"].to_numpy()[data.launch[linked]]
    threads = []
    for thread in numbered(of_thread)[0].tolist():
        ops = linked[of_thread == thread]
        threads.append(_Thread(thread, ops, data.launch[ops]))
    return threads


def _leads_ahead(data: RankData, state: I64) -> Mask:
    """Links that would lead to the future, or in a circle."""
    if len(state) == 0:
        return np.zeros(0, dtype=bool)
    op = np.maximum(state, 0) >> 1
    time = np.where(state & 1, data.end[op], data.start[op])
    odd: Mask = (state != NONE) & ((time > data.start) | ((time == data.start) & (op >= np.arange(len(state)))))
    return odd


def nearest_comm(data: RankData, ops: I64) -> I64:
    """From the start of each op back along the links: the first communication op whose end is met, NONE without."""
    nearest: I64 = data.once(_nearest)[ops]
    return nearest


def _nearest(data: RankData) -> I64:
    """By pointer doubling: links jump together, so a chain of n resolves in about log n rounds.

    Runs end where their first op does: only those jump.
    """
    target = releases(data).next_state
    n, comm = len(target), data.role == COMM
    order, head = data.once(in_runs)
    first = np.empty(n, np.int64)  # by op: the first of its run
    first[order] = order[head]
    heads = order[head == np.arange(n)]
    met, jump = np.full(n, NONE, dtype=np.int64), np.full(n, NONE, dtype=np.int64)
    there = heads[target[heads] != NONE]
    op = target[there] >> 1
    ended = comm[op] & (target[there] & 1 == 1)
    met[there[ended]] = op[ended]
    jump[there[~ended]] = first[op[~ended]]
    live = there[~ended]
    while len(live):
        ahead = jump[live]
        met[live], jump[live] = met[ahead], jump[ahead]
        live = live[(met[live] == NONE) & (jump[live] != NONE)]
    nearest: I64 = met[first]
    return nearest


def in_runs(data: RankData) -> tuple[I64, I64]:
    """Ops by stream, in order; and by place among them, the first place of its run.

    Most ops follow the end of the one before them on their stream: a run is a stretch of such, none of them but the
    last a communication.
    """
    order, target = by_id(data.stream), releases(data).next_state
    before, op = order[:-1], order[1:]
    starts = np.ones(len(order), dtype=bool)
    starts[1:] = (target[op] != 2 * before + 1) | (op < before) | (data.role[before] == COMM)
    return order, np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
