"""The forest of a rank's own ranges with what the GPU did for each: arrays per range, sums climbing to the ancestors.

Climbing goes level by level, deepest first, all ranges of a level at once. A range's ops are those launched in it or in
the ranges inside it (semantics §3); its own ("self") ops are those that no deeper range encloses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.derive.accounting.places import Places, by_depth, places_of
from stepscope.derive.rank.data import COMM, COMPUTE, COPY, RankData
from stepscope.intervals import distinct
from stepscope.intervals.arrays import I64, NONE, Mask
from stepscope.model.nesting import nest

_LATE, _EARLY = np.iinfo(np.int64).max, np.iinfo(np.int64).min


@dataclass(frozen=True)
class Gpu:
    """GPU work of each range: number of ops, summed durations per role, first start, last end."""

    ops: I64
    compute_ns: I64
    comm_ns: I64
    copy_ns: I64
    first: I64
    last: I64

    @property
    def span_ns(self) -> I64:
        """First start to last end; 0 without ops."""
        return np.where(self.ops > 0, self.last - self.first, 0)


@dataclass(frozen=True)
class Forest:
    """Own ranges of a rank (rows of its range table), their parents and depths among themselves, and their texts."""

    rows: I64
    parent: I64  # index into these arrays, NONE for top-level ranges
    depth: I64
    name: I64  # id in the string table
    start: I64
    end: I64
    self_ns: I64  # host time in which no deeper range of the thread was open

    def levels(self) -> list[I64]:
        """Indices by depth, the top level first."""
        return by_depth(self.depth)

    def climb(self, own: Gpu) -> Gpu:
        """Inclusive figures: each range with everything inside it."""
        sums = [a.copy() for a in (own.ops, own.compute_ns, own.comm_ns, own.copy_ns)]
        first, last = own.first.copy(), own.last.copy()
        for level in reversed(self.levels()[1:]):
            up = self.parent[level]
            for total in sums:
                np.add.at(total, up, total[level])
            np.minimum.at(first, up, first[level])
            np.maximum.at(last, up, last[level])
        return Gpu(sums[0], sums[1], sums[2], sums[3], first, last)

    def places(self, names: pl.Series) -> tuple[I64, Places]:
        """The place of each range, and all places; `names` is what `name` are rows of."""
        return places_of(self.parent, self.depth, self.name, names)

    def outermost(self) -> Mask:
        """Ranges that lie in no range of the same text."""
        found = np.ones(len(self.rows), dtype=bool)
        above = self.parent.copy()
        live = np.flatnonzero(above != NONE)
        while len(live):
            found[live[self.name[above[live]] == self.name[live]]] = False
            above[live] = self.parent[above[live]]
            live = live[above[live] != NONE]
        return found


def forest(data: RankData) -> Forest:
    """The rank's own ranges: no setup label, no NCCL ranges, no marks. Start/end ranges stand alone, off the stacks."""
    rows = data.own_ranges
    frame = data.ranges[rows]
    start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    tid = frame["tid"].cast(pl.Int64).to_numpy()
    stacked = np.flatnonzero((frame["kind"] == "pushpop").to_numpy())
    parent = np.full(len(rows), NONE, dtype=np.int64)
    depth = np.zeros(len(rows), dtype=np.int64)
    self_ns = end - start
    found = nest(tid[stacked], start[stacked], end[stacked])
    inside = found.parent != NONE
    parent[stacked[inside]] = stacked[found.parent[inside]]
    depth[stacked] = found.depth()
    self_ns[stacked] = 0
    for thread in np.unique(tid[stacked]):
        mine = stacked[tid[stacked] == thread]
        edges = distinct(start[mine], end[mine])
        at = found.enclosing(np.full(len(edges) - 1, thread, dtype=np.int64), edges[:-1])
        hit = at != NONE
        np.add.at(self_ns, stacked[at[hit]], np.diff(edges)[hit])
    return Forest(rows, parent, depth, frame["name"].cast(pl.Int64).to_numpy(), start, end, self_ns)


def launched(data: RankData, tree: Forest, ops: I64, start: I64, end: I64) -> tuple[Gpu, Mask]:
    """Figures of the ops that each range launched itself, and which of `ops` no range launched."""
    index = np.full(data.ranges.height, NONE, dtype=np.int64)
    index[tree.rows] = np.arange(len(tree.rows))
    found = data.enclosing(ops)
    at = np.where(found != NONE, index[np.maximum(found, 0)], NONE) if len(index) else found
    hit = at != NONE
    n = len(tree.rows)
    role, length = data.role[ops], end - start
    sums = []
    for mine in (hit & (role == r) for r in (COMPUTE, COMM, COPY)):
        total = np.zeros(n, np.int64)
        np.add.at(total, at[mine], length[mine])
        sums.append(total)
    first, last = np.full(n, _LATE, np.int64), np.full(n, _EARLY, np.int64)
    np.minimum.at(first, at[hit], start[hit])
    np.maximum.at(last, at[hit], end[hit])
    count = np.bincount(at[hit], minlength=n).astype(np.int64)
    return Gpu(count, sums[0], sums[1], sums[2], first, last), ~hit
