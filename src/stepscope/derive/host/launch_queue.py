"""How many launches a stream has pending, as a step function of time, and where the launch queue was full.

An entry is one launch call for one stream: it is pending from the start of the call to the first start of what it
launched (a graph launch is one entry, whatever it holds). This is the definition of traceinsight's queue length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepscope.derive.rank.data import RankData
from stepscope.intervals import Spans, covered, distinct, intersect, union
from stepscope.model.nesting import NONE

I64 = npt.NDArray[np.int64]

#: Pending launches, the one being launched included, at which a launch call waits for one to start. The queue has 1024
#: places; the real trace that fills it (a100_lm2.7b_nvtx: 2.16 s, all of them inside launch calls of up to 90 ms) has
#: 1022 pending then, and never one more.
LIMIT = 1022


@dataclass(frozen=True)
class Entries:
    """Launches by stream: when the call began and ended, and when the first op of it started."""

    stream: I64
    call: I64
    called: I64
    returned: I64
    started: I64


@dataclass(frozen=True)
class Depth:
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


def entries(data: RankData) -> Entries:
    """All launches of the rank. Ops without a launch record have no place in a queue."""
    ops = np.flatnonzero(data.launch != NONE)
    calls = data.calls.select("start_ns", "end_ns")
    order = np.lexsort((data.launch[ops], data.stream[ops]))  # stable, and ops are in start order: the first is first
    stream, call = data.stream[ops][order].astype(np.int64), data.launch[ops][order]
    first = np.r_[True, (stream[1:] != stream[:-1]) | (call[1:] != call[:-1])] if len(ops) else np.zeros(0, dtype=bool)
    stream, call = stream[first], call[first]
    return Entries(
        stream,
        call,
        calls["start_ns"].to_numpy()[call],
        calls["end_ns"].to_numpy()[call],
        data.start[ops][order][first],
    )


def depth_of(found: Entries, mine: npt.NDArray[np.bool_]) -> Depth:
    """Pending launches over time, of the entries that `mine` marks."""
    mine = mine & (found.started > found.called)
    edges = distinct(found.called[mine], found.started[mine])
    change = np.zeros(len(edges), np.int64)
    np.add.at(change, np.searchsorted(edges, found.called[mine]), 1)
    np.add.at(change, np.searchsorted(edges, found.started[mine]), -1)
    return Depth(edges, np.cumsum(change)[:-1] if len(edges) else change)


def blocked(found: Entries, mine: npt.NDArray[np.bool_], depth: Depth, busy: Spans, lo: int, hi: int) -> int:
    """Time in launch calls while the queue was full and the GPU at work: waiting for room, not for anything else."""
    full = intersect(depth.at_least(LIMIT), busy).clip(lo, hi)
    if len(full) == 0:
        return 0
    return int(covered(found.called[mine], found.returned[mine], full).sum())
