"""Ranks that share a GPU: while one of them waits, another may compute.

Hiding the wait gives time back only where the GPU would else do nothing: the rest makes the others slower.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from stepscope.derive.comm.common_clock import CommonClock
from stepscope.derive.rank.data import ranks_of
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.evidence.parts import spans_of
from stepscope.intervals import Spans, covered, join, subtract, union
from stepscope.intervals.arrays import F64, I64
from stepscope.model.ranks import sharing


class Hideable(Struct, frozen=True):
    """How much of communication could be hidden on GPUs that are shared: 1 where none is."""

    share: float

    def of(self, ns: int) -> int:
        return round(ns * self.share)

    @property
    def words(self) -> str:
        """A sentence on it for a finding; empty where no GPU is shared, or the others hardly compute meanwhile."""
        others = f"{100 * (1 - self.share):.0f}"
        if others == "0":
            return ""
        return (
            f". Ranks share a GPU: for {others} % of that time another rank computes, and hiding the communication "
            "would only slow that one down; that part is not counted"
        )


def hideable(case: Case, ops: Mapping[int, I64]) -> Hideable:
    """Of the time that these ops have no compute of their own rank beside them: where no rank on the GPU computes."""
    computing = case.once(_computing)
    exposed = free = 0
    for rank, spans in spans_of(case, ops).items():
        if rank not in computing:
            return Hideable(1.0)
        own, others = computing[rank]
        alone = subtract(_common(case, rank, spans), own)
        exposed += alone.length()
        free += subtract(alone, others).length()
    return Hideable(free / exposed if exposed else 1.0)


def load_on_others(case: Case, rank: int, ops: I64, excess: F64) -> int:
    """What ops of a rank cost the others on its GPU, which they slow: `excess` is the part of each that is too much.

    While k others compute beside it, an op takes nothing from them if the GPU has room for all, and 1 / (k + 1) of the
    time if it has none. Traces do not say which: it is taken to be half of that.
    """
    computing = case.once(_computing)
    if rank not in computing or not len(ops):
        return 0
    data = case.data_of(rank)
    clock = case.once(_clock)
    start, end = clock.at(rank, data.start[ops]), clock.at(rank, data.end[ops])
    took = np.maximum(end - start, 1)
    (mates,) = (ranks for ranks in sharing(case.profile.ranks) if rank in ranks)
    beside = np.sum([covered(start, end, computing[r][0]) for r in mates if r != rank], axis=0) / took
    return round(float((took * excess * np.where(beside > 0, 1 / (beside + 1), 0)).sum()) / 2)


def _computing(case: Case) -> dict[int, tuple[Spans, Spans]]:
    """By rank that shares its GPU: when it computes, and when others on the GPU do, on the common clock."""
    shared = sharing(case.profile.ranks)
    if not shared:
        return {}
    own = {d.rank: _common(case, d.rank, d.compute) for d in ranks_of(case.profile)}
    return {r: (own[r], join(*(own[q] for q in ranks if q != r))) for ranks in shared for r in ranks}


def _common(case: Case, rank: int, spans: Spans) -> Spans:
    clock = case.once(_clock)
    return union(clock.at(rank, spans.start), clock.at(rank, spans.end))


def _clock(case: Case) -> CommonClock:
    try:
        return case.path.clock
    except CannotAnswer:
        return CommonClock()
