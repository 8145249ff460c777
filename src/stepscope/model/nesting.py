"""Which range lies in which, and which range encloses a moment: exact for any intervals, not only well-nested ones.

The definition throughout: of the intervals of one group (a thread) that are open at a moment, the one that started
last; of those that started together, the shortest.

Why following parents is exact: let i be the last interval started by moment t. Every interval open at t was open when i
started, and everything open when i started, other than i's parent p, was open when p started. By induction the chain of
i's ancestors holds every interval open at t, latest started first; so the first of the chain that is still open is the
answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stepscope.intervals import distinct
from stepscope.intervals.arrays import I64, NONE, Mask, by_place, in_order, places
from stepscope.intervals.last_above import Maxima

#: So many ancestors are climbed one by one, which is fastest for what programs do; a stack of a million is not climbed.
_CLIMBS = 64
#: Of so many times as many moments as intervals, those between two edges are answered together.
_MANY = 4
#: Moments of so many groups are looked for one group after the other.
_FEW_GROUPS = 16


@dataclass(frozen=True)
class Nesting:
    """Intervals with their parents, ready for lookups. `order` sorts rows by (group, start, longest first)."""

    group: I64
    start: I64
    end: I64
    order: I64
    parent: I64  # row of the parent, NONE for top-level intervals

    def depth(self) -> I64:
        """Number of ancestors of each interval."""
        return depths(self.parent)

    def enclosing(self, group: I64, at: I64) -> I64:
        """Row of the interval of `group` that encloses each moment `at`, NONE where there is none."""
        owner = np.full(len(at), NONE, dtype=np.int64)
        if len(self.order) == 0:
            return owner
        groups = self.group[self.order]
        starts = self.start[self.order]
        bounds = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1], True])
        begun = np.full(len(at), NONE, dtype=np.int64)  # place in `order` of the last that started
        least = np.zeros(len(at), dtype=np.int64)  # place of the first of the group
        for first, last, mine, many in _moments_of(group, groups[bounds[:-1]], bounds):
            if many > _MANY * (last - first):  # between two edges the answer is the same for all
                edges = distinct(starts[first:last], self.end[self.order[first:last]])
                latest = first + places(starts[first:last], edges) - 1
                within = self._open_at(latest, np.full(len(edges), first), edges)
                owner[mine] = by_place(np.r_[NONE, within], edges, at[mine])
                continue
            latest = places(starts[first:last], at[mine]) - 1  # of those that started
            begun[mine] = np.where(latest >= 0, first + np.maximum(latest, 0), NONE)
            least[mine] = first
        asked = np.flatnonzero(begun != NONE)
        owner[asked] = self._open_at(begun[asked], least[asked], at[asked])
        return owner

    def _open_at(self, begun: I64, least: I64, at: I64) -> I64:
        """The same where it is known which interval started last by each moment, as a place, and where groups begin."""
        owner = np.full(len(at), NONE, dtype=np.int64)
        live = np.arange(len(at))
        owner[live] = self.order[begun[live]]
        for _ in range(_CLIMBS):  # to the first ancestor still open
            live = live[self.end[owner[live]] <= at[live]]
            owner[live] = self.parent[owner[live]]
            live = live[owner[live] != NONE]
            if not len(live):
                return owner
        open_still = Maxima(self.end[self.order]).last_above(begun[live], at[live])
        owner[live] = np.where(open_still >= least[live], self.order[np.maximum(open_still, 0)], NONE)
        return owner


def _moments_of(group: I64, groups: I64, bounds: I64) -> Iterator[tuple[int, int, I64 | slice, int]]:
    """Of each group: its first and last interval, and which moments are of it, and how many."""
    spans = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    if len(groups) <= _FEW_GROUPS:  # a look at all moments for each is cheaper than a sort
        for (first, last), g in zip(spans, groups, strict=True):
            rows = np.flatnonzero(group == g)
            yield first, last, slice(None) if len(rows) == len(group) else rows, len(rows)
        return
    order = np.argsort(group, kind="stable")
    sorted_ = group[order]
    begin, end = (np.searchsorted(sorted_, groups, side=side) for side in ("left", "right"))
    for (first, last), lo, hi in zip(spans, begin.tolist(), end.tolist(), strict=True):
        if lo < hi:
            yield first, last, order[lo:hi], hi - lo


def depths(parent: I64) -> I64:
    """Number of ancestors of each. Steps double from round to round, so a chain of n takes log n rounds."""
    depth: I64 = (parent != NONE).astype(np.int64)
    above = parent.copy()
    live = np.flatnonzero(above != NONE)
    while len(live):
        up = above[live]
        depth[live] += depth[up]
        above[live] = above[up]
        live = live[above[live] != NONE]
    return depth


def nearest(marked: Mask, parent: I64) -> I64:
    """Of each the nearest marked one among itself and its ancestors; NONE where there is none.

    Steps double from round to round: `up` is the ancestor that has not been looked at yet.
    """
    nearest: I64 = np.where(marked, np.arange(len(marked)), NONE)
    up = parent.copy()
    live = np.flatnonzero((nearest == NONE) & (up != NONE))
    while len(live):
        above = up[live]
        nearest[live] = nearest[above]
        up[live] = np.where(nearest[live] == NONE, up[above], NONE)
        live = live[(nearest[live] == NONE) & (up[live] != NONE)]
    return nearest


def climb(rows: I64, marked: Mask, parent: I64) -> I64:
    """From each row to the first, itself included, that is marked; NONE where there is none, and for NONE."""
    at = rows.copy()
    live = np.flatnonzero(at != NONE)
    for _ in range(_CLIMBS):
        live = live[~marked[at[live]]]
        at[live] = parent[at[live]]
        live = live[at[live] != NONE]
        if not len(live):
            return at
    at[live] = nearest(marked, parent)[at[live]]
    return at


def nest(group: I64, start: I64, end: I64) -> Nesting:
    """Nest intervals [start, end) within their groups.

    Each interval first guesses its predecessor in start order; a guess that has ended by then is replaced by *its*
    guess. Guesses jump together, so a run of n siblings resolves in about log n rounds.
    """
    n = len(start)
    order = _in_order(group, start, end)
    g, s, e = group[order], start[order], end[order]
    guess = np.where(_alone(g, s, e), NONE, np.arange(n, dtype=np.int64) - 1)
    live = np.flatnonzero(guess != NONE)
    for _ in range(_CLIMBS):
        live = live[e[guess[live]] <= s[live]]
        guess[live] = guess[guess[live]]
        live = live[guess[live] != NONE]
        if not len(live):
            break
    else:  # something very deep: one at a time, the rounds would be as many as that is deep
        around = Maxima(e).last_above(live - 1, s[live])
        guess[live] = np.where((around != NONE) & (g[np.maximum(around, 0)] == g[live]), around, NONE)
    parent = np.full(n, NONE, dtype=np.int64)
    inside = guess != NONE
    parent[order[inside]] = order[guess[inside]]
    return Nesting(group, start, end, order, parent)


def _in_order(group: I64, start: I64, end: I64) -> I64:
    """Rows by group, start, and the longest first; most are in that order as they come."""
    same = group[1:] == group[:-1]
    before = (start[1:] > start[:-1]) | ((start[1:] == start[:-1]) & (end[1:] <= end[:-1]))
    if bool(((group[1:] > group[:-1]) | (same & before)).all()):
        return np.arange(len(start), dtype=np.int64)
    return in_order(group, start, -end)


def _alone(group: I64, start: I64, end: I64) -> Mask:
    """Of intervals in order: those around which is nothing, as all before them in their group have ended."""
    alone: Mask = np.ones(len(start), dtype=bool)
    if len(start) < 2:
        return alone
    alone[1:] = group[1:] != group[:-1]
    least = min(int(start.min()), int(end.min()))
    width = int(end.max()) - least + 1
    # Groups one behind the other on one axis, so that one running maximum is that of each.
    lift = (np.cumsum(alone) - 1) * width - least if width * int(alone.sum()) < 1 << 62 else None
    if lift is not None:
        alone[1:] |= start[1:] + lift[1:] >= np.maximum.accumulate(end + lift)[:-1]
    return alone
