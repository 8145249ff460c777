"""NVTX ranges as a tree: parents, levels, and the stacks of numbers that nsys prints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.intervals.arrays import I64, NONE, Mask
from stepscope.model import nesting

#: Characters of a stack of numbers: of ranges a million deep, all of them together would fill any memory.
_MOST = 4096


@dataclass(frozen=True)
class Tree:
    """Ranges of one or more threads; arrays by row of the frame it was made of."""

    parent: I64  # row of the shortest range of the thread that contains it
    level: I64

    def stacks(self, number: I64) -> list[str]:
        """`:3:4` for range 4 inside range 3."""
        stacks = [""] * len(self.parent)
        for row in np.argsort(self.level, kind="stable").tolist():
            up = self.parent[row]
            around = stacks[up] if up != NONE else ""
            whole = f"{around}:{number[row]}"
            stacks[row] = whole if len(whole) <= _MOST else around if around.endswith("…") else f"{around}:…"
        return stacks

    def parent_numbers(self, number: I64) -> pl.Series:
        parents = pl.Series(number[self.parent.clip(0)] if len(self.parent) else number)
        return parents.set(pl.Series(self.parent == NONE), None)

    def children(self, of: Mask | None = None) -> I64:
        """How many children each range has, of those in the mask."""
        up = self.parent if of is None else self.parent[of]
        return np.bincount(up[up != NONE], minlength=len(self.parent)).astype(np.int64)


def tree(nest: nesting.Nesting) -> Tree:
    """Parents by containment: of the ranges open when a range starts, the innermost that does not end before it."""
    parent = nest.parent.copy()
    live = np.flatnonzero(parent != NONE)
    while len(live):
        live = live[nest.end[parent[live]] < nest.end[live]]
        parent[live] = nest.parent[parent[live]]
        live = live[parent[live] != NONE]
    level = nesting.Nesting(nest.group, nest.start, nest.end, nest.order, parent).depth()
    return Tree(parent, level)
