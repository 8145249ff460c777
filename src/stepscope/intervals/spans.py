"""Sets of instants as sorted, disjoint, non-touching spans.

Coverage rests on one function, `measure_before(t)`: how much of the set lies before t; the coverage of an interval is a
difference of two such measures. Of two sets, the spans of one look up which of the other they meet.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from stepscope.intervals.arrays import I64, Mask, by_place, places

#: Of two sets, one has few spans where the other has so many times as many.
_FEW = 4


class Spans(Struct, frozen=True):
    """Sorted, disjoint, non-touching, non-empty spans [start, end)."""

    start: I64
    end: I64

    @staticmethod
    def empty() -> Spans:
        return Spans(np.empty(0, np.int64), np.empty(0, np.int64))

    @staticmethod
    def of(start: int, end: int) -> Spans:
        """One span, or none where it would be empty."""
        return union(np.array([start], np.int64), np.array([end], np.int64))

    def __len__(self) -> int:
        return len(self.start)

    def length(self) -> int:
        """|x|: the time the set covers."""
        return int((self.end - self.start).sum())

    def clip(self, start: int, end: int) -> Spans:
        """The part inside [start, end)."""
        first, last = np.searchsorted(self.end, start, side="right"), np.searchsorted(self.start, end, side="left")
        if start >= end or first >= last:
            return Spans.empty()
        # Only the outermost reach beyond: what needs no cut shares memory with the whole.
        starts, ends = self.start[first:last], self.end[first:last]
        if starts[0] < start:
            starts = np.r_[start, starts[1:]]
        if ends[-1] > end:
            ends = np.r_[ends[:-1], end]
        return Spans(starts, ends)

    def measure_before(self, t: I64) -> I64:
        """How much of the set lies before each t."""
        return self._measured(t, self._before())

    def _before(self) -> I64:
        """How much of the set lies before each of its spans, and behind the last."""
        before = np.zeros(len(self) + 1, dtype=np.int64)
        np.cumsum(self.end - self.start, out=before[1:])
        return before

    def _measured(self, t: I64, before: I64) -> I64:
        if len(self) == 0:
            return np.zeros(len(t), dtype=np.int64)
        k = places(self.start, t)  # spans that started by t
        last = np.maximum(k - 1, 0)
        overshoot = np.where(k > 0, np.maximum(self.end[last] - t, 0), 0)
        measured: I64 = before[k] - overshoot
        return measured

    def contains(self, t: I64) -> Mask:
        """Whether each t lies in the set."""
        if len(self) == 0:
            return np.zeros(len(t), dtype=bool)
        k = places(self.start, t)
        inside: Mask = (k > 0) & (self.end[np.maximum(k - 1, 0)] > t)
        return inside

    def meets(self, start: I64, end: I64) -> Mask:
        """Whether each interval [start, end) shares an instant with the set."""
        if len(self) == 0:
            return np.zeros(len(start), dtype=bool)
        never = np.iinfo(np.int64).max  # behind the last span
        # Where the first span begins that is not over.
        shares: Mask = by_place(np.append(self.start, never), self.end, start) < end
        shares &= start < end
        return shares


def distinct(*times: I64) -> I64:
    """All times in order, each once. The inputs are mostly in order already: a merge sort beats NumPy's hashing."""
    joined = np.concatenate(times)
    joined.sort(kind="stable")
    return joined[np.r_[True, joined[1:] != joined[:-1]]] if len(joined) else joined


def union(start: I64, end: I64) -> Spans:
    """The instants that any of the intervals covers; touching intervals become one span."""
    real = start < end
    if not real.all():
        start, end = start[real], end[real]
    if len(start) == 0:
        return Spans.empty()
    if np.any(start[1:] < start[:-1]):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    opens = np.r_[True, start[1:] > reach[:-1]]
    closes = np.r_[opens[1:], True]
    return Spans(start[opens], reach[closes])


def join(*parts: Spans) -> Spans:
    """All instants that any of these have."""
    parts = tuple(filter(len, parts))
    if len(parts) < 2:
        return parts[0] if parts else Spans.empty()
    if len(parts) == 2:
        few, many = sorted(parts, key=len)
        if _FEW * len(few) <= len(many):
            return _joined(few, many)
    return union(np.concatenate([s.start for s in parts]), np.concatenate([s.end for s in parts]))


def _joined(few: Spans, many: Spans) -> Spans:
    """Only those of the many that one of the few meets or touches are sorted again."""
    first = np.searchsorted(many.end, few.start, side="left")
    behind = np.searchsorted(many.start, few.end, side="right")
    edges = np.zeros(len(many) + 1, dtype=np.int32)
    np.add.at(edges, first, 1)
    np.add.at(edges, behind, -1)
    met = np.cumsum(edges[:-1], dtype=np.int32) > 0
    new = union(np.concatenate([many.start[met], few.start]), np.concatenate([many.end[met], few.end]))
    start, end = many.start[~met], many.end[~met]
    at = np.searchsorted(start, new.start)
    return Spans(np.insert(start, at, new.start), np.insert(end, at, new.end))


def covered(start: I64, end: I64, by: Spans) -> I64:
    """How much of each interval [start, end) lies in `by`."""
    before = by._before()
    length: I64 = np.maximum(by._measured(end, before) - by._measured(start, before), 0)
    return length


def intersect(a: Spans, b: Spans) -> Spans:
    """The instants in both."""
    if len(a) > len(b):  # those of the fewer look up those of the more
        a, b = b, a
    if len(a) == 0:
        return Spans.empty()
    # Each span of `a` meets a stretch of spans of `b`. What two of them share touches nothing else that is shared:
    # where it ends, `a` or `b` ends, and their spans do not touch.
    first = np.searchsorted(b.end, a.start, side="right")
    meets = np.maximum(np.searchsorted(b.start, a.end, side="left") - first, 0)
    of_a = np.repeat(np.arange(len(a)), meets)
    of_b = np.arange(len(of_a)) + np.repeat(first - (np.cumsum(meets) - meets), meets)
    return Spans(np.maximum(a.start[of_a], b.start[of_b]), np.minimum(a.end[of_a], b.end[of_b]))


def subtract(a: Spans, b: Spans) -> Spans:
    """The instants of `a` that are not in `b`."""
    if len(a) == 0 or len(b) == 0:
        return a
    return intersect(a, gaps(b, int(a.start[0]), int(a.end[-1])))


def gaps(spans: Spans, start: int, end: int) -> Spans:
    """The instants of [start, end) that `spans` leaves uncovered."""
    within = spans.clip(start, end)
    if len(within) == 0:
        return Spans.of(start, end)
    opens, closes = np.r_[start, within.end], np.r_[within.start, end]
    inner = slice(int(opens[0] == closes[0]), len(opens) - int(opens[-1] == closes[-1]))
    return Spans(opens[inner], closes[inner])
