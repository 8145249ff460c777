"""The exact partition of a window into compute, exposed communication, exposed copies and idle (semantics §6)."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.derive.rank.data import COMM, COPY, RankData
from stepscope.intervals import Spans, gaps, intersect, join, subtract, union


@dataclass(frozen=True)
class Partition:
    """Four disjoint sets of instants whose lengths sum to the window, and the communication hidden under compute."""

    start: int
    end: int
    compute: Spans
    comm_exposed: Spans
    copy_exposed: Spans
    idle: Spans
    comm_hidden_ns: int

    @property
    def window_ns(self) -> int:
        return self.end - self.start


def partition(data: RankData, start: int, end: int) -> Partition:
    """Split [start, end) of the rank's GPU time: compute first, then communication (barriers too), then copies."""
    near = (data.start < end) & (data.end > start)
    compute = data.compute.clip(start, end)
    comm, copy = (
        union(data.start[rows], data.end[rows]).clip(start, end)
        for rows in (near & (data.role == role) for role in (COMM, COPY))
    )
    busy = compute
    bare = []
    for spans in (comm, copy):
        bare.append(subtract(spans, busy))
        busy = join(busy, spans)
    hidden = intersect(comm, compute).length()
    return Partition(start, end, compute, bare[0], bare[1], gaps(busy, start, end), hidden)
