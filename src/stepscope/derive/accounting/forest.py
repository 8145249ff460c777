"""The forest of a rank's own ranges with what the GPU did for each: arrays per range, sums climbing to the ancestors.

A range's ops are those launched in it or in
the ranges inside it (semantics §3); its own ("self") ops are those that no deeper range encloses.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.accounting.places import Places, places_of
from stepscope.derive.rank.data import COMM, COMPUTE, COPY, RankData
from stepscope.intervals import distinct
from stepscope.intervals.arrays import I64, NONE, Mask
from stepscope.model.nesting import nest
from stepscope.model.subtrees import Subtrees

_LATE, _EARLY = np.iinfo(np.int64).max, np.iinfo(np.int64).min


class Gpu(Struct, frozen=True):
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


class Forest(Struct, frozen=True):
    """Own ranges of a rank (rows of its range table), their parents and depths among themselves, and their texts."""

    rows: I64
    parent: I64  # index into these arrays, NONE for top-level ranges
    depth: I64
    name: I64  # id in the string table
    start: I64
    end: I64
    self_ns: I64  # host time in which no deeper range of the thread was open
    inside: Subtrees

    def climb(self, own: Gpu) -> Gpu:
        """Inclusive figures: each range with everything inside it."""
        total = self.inside.total
        times = (total(own.compute_ns), total(own.comm_ns), total(own.copy_ns))
        return Gpu(total(own.ops), *times, self.inside.least(own.first), self.inside.most(own.last))

    def places(self, names: pl.Series) -> tuple[I64, Places]:
        """The place of each range, and all places; `names` is what `name` are rows of."""
        return places_of(self.parent, self.depth, self.name, names)

    def outermost(self) -> Mask:
        """Ranges that lie in no range of the same text."""
        return self.inside.outermost(self.name)


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
    nesting = nest(tid[stacked], start[stacked], end[stacked])
    has_parent = nesting.parent != NONE
    parent[stacked[has_parent]] = stacked[nesting.parent[has_parent]]
    depth[stacked] = nesting.depth()
    self_ns[stacked] = 0
    by_thread = stacked[np.argsort(tid[stacked], kind="stable")]
    of_threads = np.split(by_thread, np.flatnonzero(np.diff(tid[by_thread])) + 1) if len(by_thread) else []
    edges = [distinct(start[mine], end[mine]) for mine in of_threads]
    thread = [np.full(max(len(e) - 1, 0), tid[mine[0]]) for e, mine in zip(edges, of_threads, strict=True)]
    if edges:
        at = nesting.enclosing(np.concatenate(thread), np.concatenate([e[:-1] for e in edges]))
        hit = at != NONE
        np.add.at(self_ns, stacked[at[hit]], np.concatenate([np.diff(e) for e in edges])[hit])
    alone = np.flatnonzero((frame["kind"] != "pushpop").to_numpy())
    inside = Subtrees(np.concatenate([stacked[nesting.order], alone]), depth)
    return Forest(rows, parent, depth, frame["name"].cast(pl.Int64).to_numpy(), start, end, self_ns, inside)


def launched(data: RankData, tree: Forest, ops: I64, start: I64, end: I64) -> tuple[Gpu, Mask]:
    """Figures of the ops that each range launched itself, and which of `ops` no range launched."""
    index = np.full(data.ranges.height, NONE, dtype=np.int64)
    index[tree.rows] = np.arange(len(tree.rows))
    ranges_at = data.enclosing(ops)
    at = np.where(ranges_at != NONE, index[np.maximum(ranges_at, 0)], NONE) if len(index) else ranges_at
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
