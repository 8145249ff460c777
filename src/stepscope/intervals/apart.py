"""Intervals that can share a line: each begins once the one before it has ended."""

from __future__ import annotations

import numpy as np

from stepscope.intervals.arrays import I64, Mask


def apart(start: I64, end: I64) -> Mask:
    """Of intervals by start: the first, the first that begins once that has ended, and so on: which these are.

    Each knows the one that would follow it; jumps that double in length find all that follow the first.
    """
    count = len(start)
    follows = np.append(np.maximum(np.searchsorted(start, end), np.arange(1, count + 1)), count)
    on = np.zeros(count + 1, dtype=bool)
    on[:1] = True
    while (follows[:count] < count).any():
        on[follows[on]] = True
        follows = follows[follows]
    return on[:count]
