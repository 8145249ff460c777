"""What released each op of a rank: the op before it on its stream, an event's op, or the host and what that waited for.

An op can start once its stream is free, the events that its stream waits for are complete, and its launch has returned;
the last of these released it. A host that was free to launch only because a blocking call had returned was itself
released by the op that the call waited for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepscope.analyses._causes import ALLOC, SYNC, call_causes
from stepscope.analyses._depend import dependencies
from stepscope.analyses._rank import RankData
from stepscope.model.nesting import NONE

I64 = npt.NDArray[np.int64]

BY_NOTHING, BY_STREAM, BY_EVENT, BY_HOST = range(4)


@dataclass(frozen=True)
class Released:
    """Per op: `by` what it was released, `op` the op behind that (NONE: the beginning), and for the host `call`, the
    blocking call that the host came from (NONE: it did not wait)."""

    by: I64
    op: I64
    call: I64

    def nearest(self, wanted: npt.NDArray[np.bool_]) -> tuple[I64, npt.NDArray[np.bool_]]:
        """Follow what released each op to the first op that `wanted` marks; whether the host was on the way."""
        target, host = self.op.copy(), self.by == BY_HOST
        while True:  # each round doubles the reach
            live = np.flatnonzero((target != NONE) & ~wanted[np.maximum(target, 0)])
            if len(live) == 0:
                return target, host
            step = target[live]
            host[live] |= host[step]
            target[live] = target[step]


def released(data: RankData) -> Released:
    """For every op of the rank."""
    n = len(data.start)
    found = dependencies(data, data.syncs)
    op, by_event = found.latest(data.end)
    done = np.where(op != NONE, data.end[np.maximum(op, 0)], np.iinfo(np.int64).min) if n else data.end
    linked = data.launch != NONE
    returned = np.full(n, np.iinfo(np.int64).min)
    returned[linked] = data.calls["end_ns"].to_numpy()[data.launch[linked]]
    hosted = linked & (returned > done)
    by = np.where(hosted, BY_HOST, np.where(op == NONE, BY_NOTHING, np.where(by_event, BY_EVENT, BY_STREAM)))
    behind, call = _behind_host(data)
    return Released(by, np.where(hosted, behind, op), np.where(hosted, call, NONE))


def _behind_host(data: RankData) -> tuple[I64, I64]:
    """Per op, had the host released it: the blocking call before its launch that waited last, and the op waited for."""
    n = len(data.start)
    nothing = np.full(n, NONE, dtype=np.int64)
    if n == 0 or data.calls.height == 0:
        return nothing, nothing
    start, end = (data.calls[c].to_numpy() for c in ("start_ns", "end_ns"))
    blocking = np.flatnonzero(np.isin(call_causes(data), (SYNC, ALLOC)))
    # The call waited for the last op launched before it that ended while it ran, if any did.
    waited = _last_ended(data, start[blocking], end[blocking])
    blocking, waited = blocking[waited != NONE], waited[waited != NONE]
    if len(blocking) == 0:
        return nothing, nothing
    order = np.argsort(end[blocking], kind="stable")
    blocking, waited = blocking[order], waited[order]
    launched = np.where(data.launch != NONE, data.launched_at, np.iinfo(np.int64).min)
    at = np.searchsorted(end[blocking], launched, side="right") - 1
    hit = at >= 0
    behind, call = nothing.copy(), nothing.copy()
    behind[hit], call[hit] = waited[at[hit]], blocking[at[hit]]
    return behind, call


def _last_ended(data: RankData, start: I64, end: I64) -> I64:
    """The op, launched before `start`, that ended last in each [start, end); NONE where none did."""
    by_end = np.argsort(data.end, kind="stable")
    ends = data.end[by_end]
    at = np.searchsorted(ends, end, side="left") - 1
    launched = data.launched_at[by_end]
    found = np.full(len(start), NONE, dtype=np.int64)
    live = np.arange(len(start))
    for _ in range(64):  # later launches are few: threads hardly overlap a blocking call
        live = live[(at[live] >= 0) & (ends[np.maximum(at[live], 0)] > start[live])]
        if len(live) == 0:
            break
        right = launched[at[live]] < start[live]
        found[live[right]] = by_end[at[live[right]]]
        live = live[~right]
        at[live] -= 1
    return found
