"""The last entry up to a place that is above a bound: a tree of maxima, asked for many places at once."""

from __future__ import annotations

import numpy as np

from stepscope.intervals.arrays import I64, NONE


class Maxima:
    """A binary tree over `values`: every node holds the highest below it. It takes twice the memory of the values."""

    def __init__(self, values: I64) -> None:
        self._leaves = 1 << max(len(values) - 1, 0).bit_length()
        self._tree = np.full(2 * self._leaves, np.iinfo(np.int64).min, dtype=np.int64)
        self._tree[self._leaves : self._leaves + len(values)] = values
        level = self._leaves
        while level > 1:
            below = self._tree[level : 2 * level]
            self._tree[level // 2 : level] = np.maximum(below[0::2], below[1::2])
            level //= 2

    def last_above(self, at: I64, bound: I64) -> I64:
        """Of each place `at`: the last place up to it, itself included, whose value is above `bound`; NONE for none."""
        last_above = np.full(len(at), NONE, dtype=np.int64)
        node = self._leaves + at
        climbing = np.flatnonzero((at >= 0) & (self._tree[node] <= bound))
        descending = [np.flatnonzero((at >= 0) & (self._tree[node] > bound))]
        while len(climbing):
            climbing = climbing[node[climbing] > 1]
            left = node[climbing] - 1
            hit = (node[climbing] % 2 == 1) & (self._tree[left] > bound[climbing])
            node[climbing[hit]] = left[hit]
            descending.append(climbing[hit])
            climbing = climbing[~hit]
            node[climbing] //= 2
        live = np.concatenate(descending)
        while len(live):
            whole = node[live] >= self._leaves
            last_above[live[whole]] = node[live[whole]] - self._leaves
            live = live[~whole]
            right = 2 * node[live] + 1
            node[live] = np.where(self._tree[right] > bound[live], right, right - 1)
        return last_above
