"""The exact partition of a window into compute, exposed communication, exposed copies and idle (semantics §6)."""

from __future__ import annotations

from msgspec import Struct

from stepscope.derive.rank.data import COMM, COPY, RankData
from stepscope.intervals import Spans, gaps, join, subtract, union


class Partition(Struct, frozen=True):
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
    return data.once(_partition, start, end)


def _partition(data: RankData, start: int, end: int) -> Partition:
    compute = data.compute.clip(start, end)
    comm, copy = (data.once(_spans_of, role).clip(start, end) for role in (COMM, COPY))
    busy = compute
    bare = []
    for spans in (comm, copy):
        bare.append(subtract(spans, busy))
        busy = join(busy, spans)
    hidden = comm.length() - bare[0].length()
    return Partition(start, end, compute, bare[0], bare[1], gaps(busy, start, end), hidden)


def _spans_of(data: RankData, role: int) -> Spans:
    """∪ of all ops of one role."""
    rows = data.role == role
    return union(data.start[rows], data.end[rows])
