"""One row of the timeline: marks sorted by start, and what of them a view shows.

Where a view has few enough marks they are sent as they are. Else marks that are at least a bucket long are sent, and
buckets for the others, so that there are at most two marks a pixel, however many there are in the trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from stepscope.intervals import covered, union
from stepscope.intervals.arrays import I64, Mask
from stepscope.timeline.messages import Group
from stepscope.timeline.pyramid import Buckets, Pyramid, buckets

#: Marks a pixel.
PER_PIXEL = 2
#: Less is not worth a view.
_LEAST_PIXELS = 16


@dataclass(frozen=True)
class Marks:
    """What is drawn of one track. `busy` is 0 for a mark of its own, else the share of the bucket that is busy, of 255;
    `name` is then a family, not a text. `n` counts what begins in it; `row` is the mark's place in its track."""

    start: I64
    end: I64
    kind: npt.NDArray[np.uint8]
    name: I64
    n: I64
    busy: npt.NDArray[np.uint8]
    row: I64
    match: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Track:
    """Marks of one lane. `family` numbers the families of the track: the entries of `kinds` and `families`."""

    rank: int
    group: Group
    level: int
    label: str
    start: I64
    end: I64
    name: I64
    family: npt.NDArray[np.uint8]
    #: by family: its kind, as the page draws it, and its number in the scene
    kinds: npt.NDArray[np.uint8]
    families: I64
    #: rows of the marks in the table that they are from
    row: I64
    #: parts follow each other without a gap: a bucket is shown as the shares of all of them
    shares: bool = False
    #: what a report carries of each mark, by name (block.py)
    carried: Mapping[str, I64] = field(default_factory=dict, repr=False)
    _long: dict[int, I64] = field(default_factory=dict, repr=False)
    _coarsest: list[Pyramid] = field(default_factory=list, repr=False)

    @cached_property
    def pyramid(self) -> Pyramid:
        return Pyramid.of(self.start, self.end, self.family, len(self.kinds))

    def _kept(self, level: int, overview: bool) -> Buckets | None:
        """All marks in buckets of 2^level ns; None where that is finer than what is kept.

        Of a track that is only seen as a whole, what is finer than the first such view is not worked out.
        """
        if overview and "pyramid" not in self.__dict__:
            if not self._coarsest:
                marks = self.start, self.end, self.family
                self._coarsest.append(Pyramid([buckets(*marks, len(self.kinds), level)] if len(self.start) else []))
            if (found := self._coarsest[0].at(level)) is not None:
                return found
        return self.pyramid.at(level)

    @cached_property
    def _reach(self) -> I64:
        """How far each mark and all before it reach."""
        return np.maximum.accumulate(self.end)

    def view(self, lo: int, hi: int, pixels: int, matches: Mask | None = None, *, overview: bool = False) -> Marks:
        """What [lo, hi) shows on so many pixels; `matches` says by text which are searched for.

        `overview`: of one who looks at all there is, on ever fewer pixels, and never closer.
        """
        pixels = max(pixels, _LEAST_PIXELS)
        first, last = self._near(lo, hi)
        if last - first <= PER_PIXEL * pixels:
            rows = np.arange(first, last)
            return self._marks(rows[self.end[rows] >= lo], matches)
        level = _level(hi - lo, pixels // 2 if self.shares else pixels)
        while True:
            marks = self._coarse(lo, hi, level, matches, overview)
            if len(marks.start) <= PER_PIXEL * pixels:
                return marks
            level += 1

    def _near(self, lo: int, hi: int) -> tuple[int, int]:
        """Marks that can reach into [lo, hi)."""
        first, last = np.searchsorted(self._reach, lo), np.searchsorted(self.start, hi)
        return int(first), max(int(first), int(last))

    def _marks(self, rows: I64, matches: Mask | None) -> Marks:
        name = self.name[rows]
        match = np.zeros(len(rows), np.uint8) if matches is None else matches[name].astype(np.uint8)
        one, none = np.ones(len(rows), np.int64), np.zeros(len(rows), np.uint8)
        return Marks(self.start[rows], self.end[rows], self.kinds[self.family[rows]], name, one, none, rows, match)

    def _coarse(self, lo: int, hi: int, level: int, matches: Mask | None, overview: bool) -> Marks:
        """Buckets of 2^level ns, and the marks that are at least as long."""
        level_marks = self._kept(level, overview)
        if level_marks is None:
            first, last = self._near(lo, hi)
            near = slice(first, last)
            level_marks = buckets(self.start[near], self.end[near], self.family[near], len(self.kinds), level)
        level_marks = level_marks.between(lo >> level, -(-hi >> level))
        if self.shares:
            return self._shared(level_marks)
        long = self.at_least(level)
        long = long[(self.start[long] < hi) & (self.end[long] > lo)]
        edge = (level_marks.first + np.arange(len(level_marks.busy), dtype=np.int64)) << level
        under = covered(edge, edge + (1 << level), union(self.start[long], self.end[long]))
        shown = (level_marks.busy > under) | ((level_marks.count > 0) & (under < 1 << level))
        return _joined(self._of_buckets(level_marks, edge, shown, matches), self._marks(long, matches))

    def at_least(self, level: int) -> I64:
        """Marks of at least 2^level ns."""
        if level not in self._long:
            self._long[level] = np.flatnonzero((self.end - self.start) >= 1 << level)
        return self._long[level]

    def _of_buckets(self, buckets: Buckets, edge: I64, shown: Mask, matches: Mask | None) -> Marks:
        family, start, wide = buckets.dominant[shown], edge[shown], 1 << buckets.level
        share = np.clip(np.rint(255 * buckets.busy[shown] / wide), 1, 255).astype(np.uint8)
        match = np.zeros(len(start), np.uint8)
        if matches is not None:
            times = self.start[matches[self.name]]
            match = (np.searchsorted(times, start) < np.searchsorted(times, start + wide)).astype(np.uint8)
        row = np.zeros(len(start), np.int64)
        return Marks(
            start, start + wide, self.kinds[family], self.families[family], buckets.count[shown], share, row, match
        )

    def _shared(self, buckets: Buckets) -> Marks:
        """Each bucket as the times of all its parts, one after the other; one that goes on in the next is one mark."""
        family, bucket = np.nonzero(buckets.time)
        order = np.lexsort((family, bucket))
        family, bucket = family[order], bucket[order]
        time = buckets.time[family, bucket]
        fresh = np.r_[True, bucket[1:] != bucket[:-1]] if len(bucket) else np.zeros(0, dtype=bool)
        before = np.cumsum(time) - time
        since = before - np.maximum.accumulate(np.where(fresh, before, 0))
        start = ((buckets.first + bucket) << buckets.level) + since
        end = start + time
        one = np.r_[True, (family[1:] != family[:-1]) | (start[1:] != end[:-1])][: len(start)]
        first = np.flatnonzero(one)
        count = np.add.reduceat(buckets.count[bucket], first) if len(first) else first
        none = np.zeros(len(first), np.int64)
        return Marks(
            start[first],
            np.r_[end[first[1:] - 1], end[-1:]],
            self.kinds[family[first]],
            self.families[family[first]],
            count,
            np.full(len(first), 255, np.uint8),
            none,
            none.astype(np.uint8),
        )


def _level(span: int, pixels: int) -> int:
    """The finest level whose buckets are at least a pixel wide."""
    return max(-(-span // max(pixels, 1)) - 1, 0).bit_length()


def _joined(a: Marks, b: Marks) -> Marks:
    """Both, by start; where they begin together, buckets first: marks are drawn over them."""
    start = np.concatenate([a.start, b.start])
    order = np.argsort(start, kind="stable")
    return Marks(*(np.concatenate([getattr(a, f), getattr(b, f)])[order] for f in a.__dataclass_fields__))
