"""How long a step is: its period, on host and GPU alike (semantics §4).

On the host a step lasts from the end of the one before it to its own end, so that input and optimizer are in it. Its
ops are those launched in that time. On the GPU it lasts from the end of all that was launched before it to the end of
all that was launched up to its own end: where the host runs ahead, that is what recurs per step on the GPU; where the
GPU waits for the host, the wait is in it. Steps leave no time out and none counts twice. The first step of a capture
begins with its own range, or when the GPU is through with what was launched before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.derive.rank.data import RankData
from stepscope.derive.windows.steps import Anchors, by_chunks, marks_of
from stepscope.intervals.arrays import I64, NONE, Mask

Span = tuple[int, int]


@dataclass(frozen=True)
class Periods:
    """The steps of one rank: edges on its host and on its GPU, one more than there are steps."""

    data: RankData
    anchors: Anchors
    cpu: I64
    gpu: I64
    _order: I64
    _cuts: I64

    def of(self, k: int) -> tuple[I64, Span, tuple[int, int] | tuple[None, None]]:
        """Ops, host period and GPU period of the k-th step; without ops, no GPU period."""
        cpu = int(self.cpu[k]), int(self.cpu[k + 1])
        ops = np.sort(self._order[self._cuts[k] : self._cuts[k + 1]])
        if not len(ops):
            return ops, cpu, (None, None)
        lo, hi = int(self.gpu[k]), int(self.gpu[k + 1])
        if 0 < self.data.unlinked < len(self.data.start):
            loose = np.flatnonzero(self.data.launch == NONE)
            ops = np.union1d(ops, loose[slice(*np.searchsorted(self.data.start[loose], [lo, hi]))])
        return ops, cpu, (lo, hi)

    @property
    def worked(self) -> Mask:
        """Which steps have GPU work."""
        worked: Mask = np.diff(self._cuts) > 0
        return worked

    @property
    def launched(self) -> tuple[I64, I64]:
        """Ops in the order of their launches that lie in steps, and the step of each."""
        lo, hi = int(self._cuts[0]), int(self._cuts[-1])
        return self._order[lo:hi], np.repeat(np.arange(len(self.anchors)), np.diff(self._cuts))

    def gpu_done(self, at: I64) -> I64:
        """When the GPU was through with all that was launched before each moment of the host."""
        reach = np.r_[self.cpu[0], np.maximum.accumulate(self.data.end[self._order])]
        times = self.data.by_launch[1] if len(self.data.by_launch[0]) else self.data.start
        done: I64 = reach[np.searchsorted(times, at)]
        return done

    @property
    def lengths(self) -> I64:
        """Length of each step on the GPU; 0 for those without GPU work, and for a last one whose end nothing marks."""
        lengths = np.where(self.worked, np.diff(self.gpu), 0)
        if by_chunks(self.anchors):
            lengths[-1] = 0
        return lengths


def periods(data: RankData) -> Periods | None:
    """The periods of the rank's steps, or of its pace where only chunks recur; None where nothing marks them."""
    return data.once(_periods)


def _periods(data: RankData) -> Periods | None:
    anchors = marks_of(data).steps or marks_of(data).repeats
    return None if anchors is None else periods_of(data, anchors)


def periods_of(data: RankData, anchors: Anchors) -> Periods:
    """The periods of steps that these ranges mark."""
    cpu = np.maximum.accumulate(np.r_[anchors.start[0], anchors.end])
    order, times = data.by_launch
    if not len(order):  # no launch is recorded: GPU time is all there is
        order, times = np.arange(len(data.start), dtype=np.int64), data.start
    cuts = np.searchsorted(times, cpu)
    reach = np.r_[cpu[0], np.maximum.accumulate(data.end[order])]
    gpu = np.maximum.accumulate(np.maximum(reach[cuts], cpu[0]))
    return Periods(data, anchors, cpu, gpu, order, cuts)
