"""Whether the records of a capture agree with each other: where they do not, no figure holds, and no figure shows it.

An op starts after its launch, every launch has its op, a plain launch has one, and kernels have names. Clocks that
disagree, buffers that overflowed and exporters that lost ids or names break this, and leave figures that look like any
others. Whoever settles windows or collects communication asks, so that every answer begins with it; so does
`capture verify`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.derive.rank.cuda_calls import Family, of_family
from stepscope.derive.rank.data import RankData
from stepscope.derive.rank.graphs import captures
from stepscope.intervals import union
from stepscope.intervals.arrays import I64, NONE, Mask
from stepscope.model.columns import NO_NAME
from stepscope.model.link import EARLY
from stepscope.model.note import Note, noted
from stepscope.model.threshold import Threshold

MOST_EARLY = Threshold(
    0.1,
    "% of the ops",
    "single flawed records start before their launch; of 133 real captures none has half as many",
    ("tests/derive/rank/test_recorded.py",),
)
MOST_LOST = Threshold(
    0.2,
    "% of the launches",
    "some launch nothing when there is nothing to do; of 133 real captures none has half as many without an op",
    ("tests/derive/rank/test_recorded.py",),
)
MOST_UNNAMED = Threshold(
    1.0,
    "% of the kernels",
    "a transfer among kernels without a name counts as compute",
    ("tests/derive/rank/test_recorded.py",),
)
_FEW = Threshold(
    5,
    "flawed records",
    "so many prove nothing, however short the capture",
    ("tests/derive/rank/test_recorded.py",),
)
_END = Threshold(
    5.0,
    "% of the capture",
    "the last part, in which its end may have cut off what streams had still to do",
    ("tests/derive/rank/test_recorded.py",),
)


@dataclass(frozen=True)
class Recorded:
    """Counts of one rank."""

    #: ops whose launch is known, and those of them that start before it
    linked: int
    early: int
    #: launches that must have an op; those without one, and of these apart those that the capture's end explains
    launches: int
    lost: int
    lost_at_end: int
    #: kernels beyond the first of a plain launch
    shared: int
    #: kernels, and those of them without a name
    kernels: int
    unnamed: int

    @property
    def clock_is_wrong(self) -> bool:
        return self.early > max(_FEW.count, MOST_EARLY.share * self.linked)

    @property
    def lost_some(self) -> bool:
        """At its end a capture may stop before the GPU does: that is not a contradiction."""
        return self.linked > 0 and self.lost > max(_FEW.count, MOST_LOST.share * self.launches)

    @property
    def ids_are_wrong(self) -> bool:
        return self.shared > max(_FEW.count, MOST_LOST.share * self.linked)

    @property
    def names_are_lost(self) -> bool:
        return self.unnamed > max(_FEW.count, MOST_UNNAMED.share * self.kernels)


def recorded(data: RankData) -> Recorded:
    """What the rank's records say against each other."""
    return data.once(_recorded)


def _recorded(data: RankData) -> Recorded:
    linked = len(data.launch) - data.unlinked
    early = int(np.count_nonzero(data.start < data.launched_at - EARLY.ns))  # launched when it starts, where unknown
    named = (int(np.count_nonzero(data.is_kernel)), _unnamed(data))
    if data.calls.height == 0 or len(data.start) == 0:
        return Recorded(linked, early, 0, 0, 0, 0, *named)
    there = _marked(data.launch, data.calls.height)
    start = data.calls["start_ns"].to_numpy()
    launches = of_family(data, Family.LAUNCH)
    of_kernels = data.launch[data.is_kernel]
    of_kernels = of_kernels[of_kernels != NONE]
    if (of_graphs := of_family(data, Family.GRAPH_LAUNCH)).any():
        of_kernels = of_kernels[~of_graphs[of_kernels]]
    shared = len(of_kernels) - int(np.count_nonzero(_marked(of_kernels, data.calls.height)))
    missing = np.flatnonzero(launches & ~there)
    # What is launched while a CUDA graph is captured goes into the graph, whichever thread launches it.
    _, begun, ended = captures(data)
    missing = missing[~union(begun, ended).contains(start[missing])]
    at_end = int((start[missing] > _last_done(data)).sum()) if len(missing) else 0
    must = int(np.count_nonzero(launches & there)) + len(missing)
    return Recorded(linked, early, must, len(missing) - at_end, at_end, shared, *named)


def _marked(rows: I64, height: int) -> Mask:
    """Which of so many rows are named at least once; NONE names none."""
    marked = np.zeros(height + 1, dtype=bool)
    marked[rows] = True  # NONE is the last
    return marked[:-1]


def _unnamed(data: RankData) -> int:
    kernels = data.name[data.is_kernel]
    nameless = (data.profile.names == NO_NAME).arg_true()  # after the ops were read
    return int(np.isin(kernels, nameless.to_numpy()).sum()) if len(nameless) else 0


def _last_done(data: RankData) -> int:
    """Until when the host's launches had all been done when the capture ended.

    Streams are behind the host by different times: of those busy at the end, the one that is furthest behind counts.
    """
    _, stream = np.unique(data.stream, return_inverse=True)
    order = np.lexsort((data.end, stream))
    last = order[np.r_[np.diff(stream[order]) != 0, True]]
    ended = data.end[last]
    busy = ended >= ended.max() - _END.share * (ended.max() - data.start.min())
    return int(data.launched_at[last[busy]].min())


def contradictions(data: RankData) -> list[Note]:
    """A note for each way in which the rank's records contradict each other; none where they agree."""
    counts = recorded(data)
    notes = []
    if counts.clock_is_wrong:
        notes.append(noted("ops-before-launch", rank=data.rank, early=counts.early, linked=counts.linked))
    if counts.lost_some:
        notes.append(noted("launches-without-op", rank=data.rank, lost=counts.lost, launches=counts.launches))
    if counts.ids_are_wrong:
        notes.append(noted("launches-shared", rank=data.rank, shared=counts.shared))
    if counts.names_are_lost:
        notes.append(noted("kernels-without-name", rank=data.rank, unnamed=counts.unnamed, kernels=counts.kernels))
    return notes
