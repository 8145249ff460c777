"""Every instant of a partition has one owner, an op: what splits a window by stage, range or kernel sums to it.

Of several ops that run at an instant the latest started owns it; a gap belongs to the op that ends it, since that is
what was waited for.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.accounting.partition import Partition
from stepscope.derive.rank.data import COMM, COMPUTE, COPY, RankData
from stepscope.intervals import Spans, distinct
from stepscope.intervals.arrays import I64, NONE
from stepscope.model.nesting import nest

_NOWHERE = np.empty(0, np.int64)


def owners(data: RankData, parts: Partition, cuts: I64 = _NOWHERE) -> list[tuple[I64, I64, I64]]:
    """Per part (compute, communication, copies, idle): the op that owns each piece, the piece's start and length.

    The op is NONE where none ends a gap. No piece lies on both sides of one of `cuts`.
    """
    pieces = [
        _running(data, role, spans, cuts)
        for role, spans in ((COMPUTE, parts.compute), (COMM, parts.comm_exposed), (COPY, parts.copy_exposed))
    ]
    return [*pieces, _waiting(data, parts.idle, cuts)]


def computing(data: RankData, parts: Partition) -> tuple[I64, I64, I64]:
    """The same of compute alone."""
    return _running(data, COMPUTE, parts.compute, _NOWHERE)


def _running(data: RankData, role: int, spans: Spans, cuts: I64) -> tuple[I64, I64, I64]:
    if len(spans) == 0:
        return _NOWHERE, _NOWHERE, _NOWHERE
    ops = np.flatnonzero((data.role == role) & (data.start < spans.end[-1]) & (data.end > spans.start[0]))
    start, end = data.start[ops], data.end[ops]
    edges = distinct(start, end, spans.start, spans.end, cuts)
    inside = spans.contains(edges[:-1])
    at, length = edges[:-1][inside], np.diff(edges)[inside]
    one = np.zeros(len(ops), np.int64)
    return ops[nest(one, start, end).enclosing(np.zeros(len(at), np.int64), at)], at, length


def _waiting(data: RankData, idle: Spans, cuts: I64) -> tuple[I64, I64, I64]:
    if len(idle) == 0:
        return _NOWHERE, _NOWHERE, _NOWHERE
    edges = distinct(idle.start, idle.end, cuts)
    inside = idle.contains(edges[:-1])
    at, length = edges[:-1][inside], np.diff(edges)[inside]
    gap = np.searchsorted(idle.start, at, side="right") - 1
    after = np.searchsorted(data.start, idle.end[gap])
    return np.where(after < len(data.start), after, NONE), at, length
