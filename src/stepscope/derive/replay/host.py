"""The host of a rank in a replay: its waits for the GPU, its own time between them, and when its launches let ops go.

Waits for what was long over count too: with a faster host, or with less to launch, they may come to hold it up. Time in
launches that a full queue held up is not time of the host's: in a replay the queue may never be full.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.graph.releases import BY_LAUNCH, Releases, launching, wait_of
from stepscope.derive.host.waits import HostWaits, host_waits
from stepscope.derive.rank.data import RankData
from stepscope.derive.replay.change import Change
from stepscope.intervals import Spans, union
from stepscope.intervals.arrays import F64, I64, NONE


def _all_waits(data: RankData) -> tuple[HostWaits, I64]:
    """Every wait, held or not, and by op the last one before its launch."""
    waits = host_waits(data, held=False)
    last = wait_of(data, waits)[0]
    data.forget(launching)  # nobody else asks
    return waits, last


def forget_waits(data: RankData) -> None:
    data.forget(_all_waits)


class Waits:
    """The host's waits for the end of an op since the step began, as `change` leaves them."""

    def __init__(self, data: RankData, recorded: Releases, begin: int, until: int | None, change: Change) -> None:
        self._data, self._recorded, self._begin = data, recorded, begin
        self._factor = change.host_factor.get(data.rank, change.every_host_factor)
        start, end = (data.calls[c].to_numpy() for c in ("start_ns", "end_ns"))
        w, self._wait_of = data.once(_all_waits)
        unheld = change.of(change.calls_not_waiting, data.rank)
        self._lost = _lost(w, start, end, unheld, change.host_time_cut.get(data.rank, Spans.empty()))
        counted = ~w.start & ~np.isin(w.call, unheld) if len(unheld) else ~w.start
        if len(w.call):
            counted &= end[w.call] > begin
            counted &= start[w.call] < (np.iinfo(np.int64).max if until is None else until)
        rows = np.flatnonzero(counted)
        #: by wait of `w`: the last one, at or before it, that is for an end and in the step
        self._number = np.searchsorted(rows, np.arange(len(w.call)), side="right") - 1
        self.op = w.op[rows]
        self.returned = end[w.call[rows]]
        called = start[w.call[rows]]
        held = data.end[self.op] > called if len(rows) else np.empty(0, bool)
        lag = self.returned - data.end[self.op] if len(rows) else np.empty(0, np.int64)
        usual = int(np.median(lag[held])) if held.any() else 0
        self.lag = np.minimum(lag, usual)
        since = self._clock(np.r_[begin, self.returned[:-1]]) if len(rows) else np.empty(0, np.int64)
        # A call that did not wait takes its own time; one that did, only that of waiting.
        passed = self._clock(np.where(held, called, self.returned))
        self.gap: F64 = np.maximum(passed - since, 0) / self._factor

    def _clock(self, times: I64) -> I64:
        """Host time without that lost in full queues, and without what the change takes away."""
        return times - self._lost.measure_before(times) if len(self._lost) else times

    def epoch(self, ops: I64) -> I64:
        """The last wait before the launch of each op, NONE since the beginning."""
        wait = self._wait_of[ops]
        if len(self._number) == 0:
            return np.full(len(wait), NONE, dtype=np.int64)
        return np.where(wait != NONE, self._number[np.maximum(wait, 0)], NONE)

    def tail(self, until: int | None) -> float:
        """Host time from the return of the last wait (or the beginning) to the end of the host's step."""
        if until is None:
            return 0.0
        since = self.returned[-1] if len(self.returned) else self._begin
        passed = self._clock(np.array([since, until], dtype=np.int64))
        return max(float(passed[1] - passed[0]), 0.0) / self._factor

    def goes_on(self, ops: I64, until: int | None) -> bool:
        """Whether the host launches after its last wait for the GPU in the step."""
        if until is None or not len(self.returned):
            return until is not None
        return bool((self._data.launched_at[ops] >= self.returned[-1]).any())

    def ready(self, ops: I64, epoch: I64) -> F64:
        """From the return of the wait (or the beginning) to when each op's launch would let it start."""
        data, usual = self._data, self._recorded.latency.launch
        launch = data.launch[ops]
        if data.calls.height == 0 or len(ops) == 0:
            return np.zeros(len(ops))
        start, end = (data.calls[c].to_numpy()[np.maximum(launch, 0)] for c in ("start_ns", "end_ns"))
        # A call that outlasts its op's start waits for it, as a blocking copy does: the host does nothing of its own.
        blocked = (end > data.start[ops]) & (self._recorded.why[ops] != BY_LAUNCH)
        called = np.where(blocked, np.minimum(start, data.start[ops]), np.minimum(end, data.start[ops]))
        since = self._clock(np.r_[self._begin, self.returned])[epoch + 1]  # NONE: since the beginning
        host = self._clock(called) - since
        lag = np.minimum(data.start[ops] - called, usual)
        # What was launched before the step began is not the sooner ready for a faster host.
        return np.where(launch != NONE, np.maximum(np.where(host > 0, host / self._factor, host) + lag, 0.0), 0.0)


def _lost(w: HostWaits, start: I64, end: I64, unheld: I64, cut: Spans) -> Spans:
    """Stretches of the host that do not count."""
    rows = np.concatenate([w.call[w.start], unheld])
    if len(rows) == 0:
        return cut
    return union(np.concatenate([start[rows], cut.start]), np.concatenate([end[rows], cut.end]))
