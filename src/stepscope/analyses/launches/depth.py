"""How many launches are pending over time, and how long launch calls waited for room in the queue."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from stepscope.derive.host.launch_queue import Entries
from stepscope.intervals import Spans, covered, distinct, intersect, union
from stepscope.intervals.arrays import I64, Mask


class Depth(Struct, frozen=True):
    """Pending launches between `edges[i]` and `edges[i+1]`."""

    edges: I64
    depth: I64

    def between(self, lo: int, hi: int) -> tuple[I64, I64]:
        """Lengths and depths of the steps, cut at [lo, hi)."""
        start, end = np.maximum(self.edges[:-1], lo), np.minimum(self.edges[1:], hi)
        keep = start < end
        return (end - start)[keep], self.depth[keep]

    def at_least(self, limit: int) -> Spans:
        """Where the depth reaches `limit`."""
        rows = self.depth >= limit
        return union(self.edges[:-1][rows], self.edges[1:][rows])


def depth_of(launched: Entries, chosen: Mask) -> Depth:
    """Pending launches over time, of the `chosen` entries."""
    chosen = chosen & (launched.started > launched.called)
    edges = distinct(launched.called[chosen], launched.started[chosen])
    change = np.zeros(len(edges), np.int64)
    np.add.at(change, np.searchsorted(edges, launched.called[chosen]), 1)
    np.add.at(change, np.searchsorted(edges, launched.started[chosen]), -1)
    return Depth(edges, np.cumsum(change)[:-1] if len(edges) else change)


def blocked(launched: Entries, chosen: Mask, full: Spans, busy: Spans) -> int:
    """Time in launch calls while the queue was full and the GPU at work: waiting for room, not for anything else."""
    full = intersect(full, busy)
    if len(full) == 0:
        return 0
    return int(covered(launched.called[chosen], launched.returned[chosen], full).sum())
