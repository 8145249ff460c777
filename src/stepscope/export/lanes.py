"""Rows of a track that overlap, spread over lanes: a viewer pairs begins and ends on a stack, and would mix them up."""

from __future__ import annotations

import numpy as np

from stepscope.intervals.apart import apart
from stepscope.intervals.arrays import I64, NONE, Mask
from stepscope.model.nesting import nest


def lanes(track: I64, start: I64, end: I64, *, nested: bool) -> I64:
    """The lane of each row within its track. On a lane no two rows overlap; with `nested`, one may lie in another."""
    lane = np.zeros(len(start), np.int64)
    left = np.arange(len(start), dtype=np.int64)
    while len(left):
        stays = (_nesting if nested else _disjoint)(track[left], start[left], end[left])
        left = left[~stays]
        lane[left] += 1
    return lane


def _disjoint(track: I64, start: I64, end: I64) -> Mask:
    """Rows that one lane takes, greedily: the first, then always the next that starts once it has ended."""
    order = np.lexsort((end, start, track))
    # Tracks one behind the other on one axis: none overlaps the next.
    span = int(end.max()) - int(start.min()) + 1
    base = track[order] * span - int(start.min())
    begins, ends = start[order] + base, end[order] + base
    stays = np.zeros(len(start), dtype=bool)
    if (begins[1:] >= ends[:-1]).all():
        stays[:] = True
        return stays
    stays[order[apart(begins, ends)]] = True
    return stays


def _nesting(track: I64, start: I64, end: I64) -> Mask:
    """Rows that lie in one another or apart: those that outlast what they began in are left out."""
    stays = np.ones(len(start), dtype=bool)
    order = np.lexsort((start, track))
    if ((start[order][1:] >= end[order][:-1]) | (track[order][1:] != track[order][:-1])).all():
        return stays  # most threads do one thing after the other
    while True:
        rows = np.flatnonzero(stays)
        parent = nest(track[rows], start[rows], end[rows]).parent
        outlasts = (parent != NONE) & (end[rows] > end[rows][parent])
        if not outlasts.any():
            return stays
        stays[rows[outlasts]] = False
