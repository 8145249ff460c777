"""Where the host waited for the GPU: calls that return when an op has ended, and launches held up by a full queue.

A synchronizing call waited for the op that ends last of those it covers, if that op still ran when the call began; an
op that was done by then held nobody up. Which launches a full queue held up, `launch_queue` says.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.host.launch_queue import held_up
from stepscope.derive.rank.cuda_calls import WAITING, Family, families, of_family
from stepscope.derive.rank.data import RankData
from stepscope.derive.rank.events import records_of
from stepscope.intervals.arrays import I64, NONE, Mask, one_of

#: What a call waits for: its stream or event, all of the device, or the copy that it makes.
_ONE = (Family.STREAM_SYNC, Family.EVENT_SYNC)
_ALL = (Family.DEVICE_SYNC, Family.FREE)


class HostWaits(Struct, frozen=True):
    """Calls that waited, by row; `op` is what for: its end, or (`start`) its start."""

    call: I64
    op: I64
    start: Mask

    def held(self, call: int) -> int:
        """Index of the wait of a call itself, NONE where it did not wait."""
        k = int(np.searchsorted(self.call, call))
        return k if k < len(self.call) and self.call[k] == call else NONE


def host_waits(data: RankData, held: bool = True) -> HostWaits:
    """All waits of a rank's host, in order of the calls. Not only `held`: also for what was over before the call."""
    return data.once(_host_waits, held)


def _host_waits(data: RankData, held: bool) -> HostWaits:
    call, op = data.once(_synchronized)
    if held and len(call):
        waited = data.end[op] > data.calls["start_ns"].to_numpy()[call]
        call, op = call[waited], op[waited]
    full, oldest = held_up(data)
    calls = np.concatenate([call, full])
    order = np.argsort(calls, kind="stable")
    at_start = np.repeat([False, True], [len(call), len(full)])
    return HostWaits(calls[order], np.concatenate([op, oldest])[order], at_start[order])


def _synchronized(data: RankData) -> tuple[I64, I64]:
    """Synchronizing calls, and the ops that they wait for: still running when the call began, or not."""
    nothing = np.empty(0, np.int64), np.empty(0, np.int64)
    if data.calls.height == 0 or len(data.start) == 0:
        return nothing
    family = families(data)
    calls = np.flatnonzero(of_family(data, *WAITING)).astype(np.int64)
    if len(calls) == 0:
        return nothing
    family = family[calls]
    one, whole, copies = (one_of(family, of) for of in (_ONE, _ALL, (Family.BLOCKING_COPY,)))
    start, end = (data.calls[c].to_numpy()[calls] for c in ("start_ns", "end_ns"))
    stream, before = _covered(data, calls, start)
    launched = data.by_launch[0] if not data.unlinked else np.argsort(data.launched_at, kind="stable")
    before_all = _Latest(data, launched)
    op = np.full(len(calls), NONE, dtype=np.int64)
    op[whole] = before_all.at(before[whole])
    for s in np.unique(stream[one & (stream != NONE)]).tolist():
        here = one & (stream == s)
        op[here] = _Latest(data, launched[data.stream[launched] == s]).at(before[here])
    op[copies] = _launched_by(data, calls[copies])
    if data.unlinked:  # launched before the capture, perhaps: they count if they end while the call waits
        late = _ended_in(data, start, end, data.launch == NONE)
        candidate = (late != NONE) & ~copies & (whole | (stream == data.stream[np.maximum(late, 0)]))
        later = candidate & ((op == NONE) | (data.end[np.maximum(late, 0)] > data.end[np.maximum(op, 0)]))
        op[later] = late[later]
    # Where the stream is not known, or what it should have waited for ran on: the op whose end let it go.
    lost = ((op == NONE) | (data.end[np.maximum(op, 0)] > end)) & ~copies
    op[lost] = _ended_in(data, start[lost], end[lost])
    # A copy that began within its call ended with it: clocks of host and GPU differ by some µs.
    over = np.where(copies, data.start[np.maximum(op, 0)], data.end[np.maximum(op, 0)]) <= end
    waited = (op != NONE) & over
    return calls[waited], op[waited]


def _covered(data: RankData, calls: I64, start: I64) -> tuple[I64, I64]:
    """By call: the stream that it waits for (NONE: not known), and up to which launch: its own time, or its event's."""
    stream, before = np.full(len(calls), NONE, dtype=np.int64), start.copy()
    syncs = data.syncs
    if syncs.height == 0:
        return stream, before
    waiting = pl.DataFrame({"correlation": data.calls["correlation"].gather(calls)}).with_row_index("at")
    kinds = pl.col("kind").is_in(["stream_sync", "event_sync"])
    recorded = waiting.join(
        syncs.with_row_index("row").filter(kinds).unique("correlation", keep="first"), on="correlation", how="inner"
    )
    at, row = recorded["at"].to_numpy(), recorded["row"].to_numpy().astype(np.int64)
    event = (recorded["kind"] == "event_sync").to_numpy()
    row[event] = records_of(data)[row[event]]  # an event stands for its record
    of = syncs["stream"].cast(pl.Int64).fill_null(NONE).to_numpy()[row]
    told_stream = (row != NONE) & (of != NONE)
    stream[at[told_stream]] = of[told_stream]
    event &= told_stream
    before[at[event]] = syncs["start_ns"].to_numpy()[row[event]]
    return stream, before


class _Latest:
    """Of some ops, in the order of their launches, the one that ends last among those launched before a moment."""

    def __init__(self, data: RankData, ops: I64) -> None:
        self._launched = data.launched_at[ops]
        end = data.end[ops]
        latest = np.where(end == np.maximum.accumulate(end), np.arange(len(ops)), 0) if len(ops) else ops
        self._op = ops[np.maximum.accumulate(latest)] if len(ops) else ops

    def at(self, moment: I64) -> I64:
        k = np.searchsorted(self._launched, moment) - 1
        return np.where(k >= 0, self._op[np.maximum(k, 0)], NONE) if len(self._op) else np.full(len(moment), NONE)


def _ended_in(data: RankData, start: I64, end: I64, only: Mask | None = None) -> I64:
    """The op (of `only`) that ended last in (start, end], launched before it; NONE where there is none."""
    by_end = data.by_end if only is None else data.by_end[only[data.by_end]]
    ends = data.end[by_end]
    k = np.searchsorted(ends, end, side="right") - 1
    free = data.launch[by_end] == NONE
    live = np.flatnonzero(k >= 0)
    while len(live):  # past what other threads launched meanwhile
        live = live[ends[k[live]] > start[live]]
        live = live[~free[k[live]] & (data.launched_at[by_end[k[live]]] >= start[live])]
        k[live] -= 1
        live = live[k[live] >= 0]
    ended = (k >= 0) & (ends[np.maximum(k, 0)] > start) if len(ends) else np.zeros(len(k), dtype=bool)
    return np.where(ended, by_end[np.maximum(k, 0)] if len(by_end) else NONE, NONE)


def _launched_by(data: RankData, calls: I64) -> I64:
    """The op that each call launched, NONE where the trace has none."""
    linked = np.flatnonzero(data.launch != NONE)
    order = linked[np.argsort(data.launch[linked], kind="stable")]
    k = np.searchsorted(data.launch[order], calls)
    op = order[np.minimum(k, len(order) - 1)] if len(order) else np.zeros(len(calls), np.int64)
    hit = (k < len(order)) & (data.launch[op] == calls) if len(order) else np.zeros(len(calls), dtype=bool)
    return np.where(hit, op, NONE)
