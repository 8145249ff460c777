"""What each op's start hung on within its rank: the op before it, an event's op, or what the host had waited for."""

from __future__ import annotations

import numpy as np

from stepscope.simulate.engine.rank import RankSim
from stepscope.simulate.engine.record import BY_EVENT, BY_LAUNCH, BY_STREAM
from stepscope.simulate.programs.assemble import bytes_of, ints, small, table
from stepscope.simulate.trace.trace import I64


def before_on_stream(sim: RankSim) -> I64:
    """The op before each op on its stream, -1 for the first; in launch order."""
    slot = bytes_of(sim.op_slot)
    order = np.argsort(slot, kind="stable")
    found = np.full(len(order), -1, dtype=np.int64)
    same = slot[order][1:] == slot[order][:-1]
    found[order[1:][same]] = order[:-1][same]
    return found


def waits_of_host(sim: RankSim) -> tuple[I64, I64, I64]:
    """Where the host waited for the GPU, in order: call, op, and 1 where for the op's start alone (a full queue)."""
    call, op, start = table(sim.host_wait, 3)
    return call, op, start


def cause_of(sim: RankSim) -> tuple[I64, I64]:
    """For each op, the op whose end its start hung on (-1: the beginning), and the time in between.

    A launch that a full queue held up went on when another op started: it hung on what that op's start hung on.
    """
    why = bytes_of(sim.op_why)
    found = np.where(why == BY_STREAM, before_on_stream(sim), -1)
    events = np.flatnonzero(why == BY_EVENT)
    found[events] = [sim.op_source[op] for op in events.tolist()]
    call, waited, at_start = waits_of_host(sim)
    hosted = np.flatnonzero(why == BY_LAUNCH)
    latest = np.searchsorted(call, small(sim.op_call)[hosted], side="right") - 1
    found[hosted] = np.where(latest >= 0, waited[np.maximum(latest, 0)], -1) if len(call) else -1
    if len(call):
        queued = hosted[(latest >= 0) & (at_start[np.maximum(latest, 0)] > 0)]
        for op in queued.tolist():  # in order of launch: what it waited for was launched before, and is settled
            found[op] = found[found[op]]
    begin = sim.range_start[0]
    before = np.where(found >= 0, ints(sim.op_end)[np.maximum(found, 0)], begin)
    return found, np.maximum(ints(sim.op_start) - before, 0)


def nearest(cause: I64, between: I64, wanted: I64) -> tuple[I64, I64]:
    """Follow causes to the first op that `wanted` marks; and the time between ops on the way. By pointer doubling."""
    target, free = cause.copy(), between.copy()
    while True:
        live = np.flatnonzero((target >= 0) & (wanted[np.maximum(target, 0)] == 0))
        if len(live) == 0:
            return target, free
        step = target[live]
        free[live] += free[step]
        target[live] = target[step]
