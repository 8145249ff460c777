"""A track at every level of detail: buckets of 2^k ns with their busy time, number of marks and dominant family.

Each level is twice as coarse as the one below. Busy time is that in which any mark runs, so that marks that overlap
count once; the dominant family is the one whose marks run longest in the bucket (of several, the first). Both are
sums over halves, so that a level is made of the one below it, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepscope.intervals import union
from stepscope.intervals.arrays import I64

#: Marks to a bucket of the finest level that is kept: what is finer is made of the marks in view when asked for.
_MARKS_PER_BUCKET = 4


@dataclass(frozen=True)
class Buckets:
    """Buckets of 2^`level` ns from number `first` on: arrays are by bucket."""

    level: int
    first: int
    busy: I64
    count: I64
    #: time of each family, by family and bucket
    time: npt.NDArray[np.int64]

    @property
    def dominant(self) -> npt.NDArray[np.uint8]:
        largest: npt.NDArray[np.uint8] = np.argmax(self.time, axis=0).astype(np.uint8)
        return largest

    def between(self, first: int, last: int) -> Buckets:
        """Buckets first to last - 1, where there are any."""
        lo = min(max(first - self.first, 0), len(self.busy))
        hi = max(min(last - self.first, len(self.busy)), lo)
        return Buckets(self.level, self.first + lo, self.busy[lo:hi], self.count[lo:hi], self.time[:, lo:hi])

    def coarser(self) -> Buckets:
        """The same in buckets of twice the length."""
        odd = self.first % 2
        count = len(self.busy) + odd
        pad = odd, count % 2
        first = (self.first - odd) // 2
        both = np.pad(self.time, ((0, 0), pad)).reshape(len(self.time), -1, 2).sum(axis=2)
        busy, n = (np.pad(x, pad).reshape(-1, 2).sum(axis=1) for x in (self.busy, self.count))
        return Buckets(self.level + 1, first, busy, n, both)


def buckets(start: I64, end: I64, family: npt.NDArray[np.uint8], families: int, level: int) -> Buckets:
    """Buckets of 2^`level` ns around marks that are sorted by start."""
    if not len(start):
        none = np.empty(0, np.int64)
        return Buckets(level, 0, none, none, np.zeros((families, 0), np.int64))
    first, last = int(start[0]) >> level, max(int(end.max()) - 1, int(start[-1])) >> level
    edges = np.arange(first, last + 2, dtype=np.int64) << level
    spans = union(start, end)
    time = np.zeros((families, len(edges) - 1), np.int64)
    for each in np.unique(family).tolist():
        mine = family == each
        time[each] = np.diff(_passed(start[mine], end[mine], edges))
    count = np.diff(np.searchsorted(start, edges))
    return Buckets(level, first, np.diff(spans.measure_before(edges)), count, time)


def _passed(start: I64, end: I64, at: I64) -> I64:
    """How much of all these intervals together lies before each moment; overlapping ones count each."""
    end = np.sort(end)
    begun, ended = np.searchsorted(start, at), np.searchsorted(end, at)
    origin = int(at[0])  # small numbers, so that products of them fit
    starts, ends = (np.r_[0, np.cumsum(x - origin)] for x in (start, end))
    passed: I64 = (begun - ended) * (at - origin) - starts[begun] + ends[ended]
    return passed


@dataclass(frozen=True)
class Pyramid:
    """The levels that are kept, from the finest up to one bucket or two."""

    levels: list[Buckets]

    @staticmethod
    def of(start: I64, end: I64, family: npt.NDArray[np.uint8], families: int) -> Pyramid:
        if not len(start):
            return Pyramid([])
        span = max(int(end.max()) - int(start[0]), 1)
        wanted = max(len(start) // _MARKS_PER_BUCKET, 1)
        levels = [buckets(start, end, family, families, (span // wanted).bit_length())]
        while len(levels[-1].busy) > 2:
            levels.append(levels[-1].coarser())
        return Pyramid(levels)

    def at(self, level: int) -> Buckets | None:
        """That level; None where it is finer than all that are kept."""
        if not self.levels or level < self.levels[0].level:
            return None
        while level > self.levels[-1].level:
            self.levels.append(self.levels[-1].coarser())
        return self.levels[level - self.levels[0].level]
