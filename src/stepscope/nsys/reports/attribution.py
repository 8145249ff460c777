"""Which NVTX ranges a launching call lies in: those of its thread that were open from its start to its end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from stepscope.intervals.arrays import I64, NONE
from stepscope.model import nesting
from stepscope.nsys.reports.view import View, ints


@dataclass(frozen=True)
class Attribution:
    """Ranges that begin and end on one thread, nested; and for each launching call, the innermost that contains it."""

    ranges: pl.DataFrame
    nest: nesting.Nesting
    #: Rows of `View.calls` that launched something, ascending, and the row of their innermost range.
    calls: I64
    innermost: I64
    call_end: I64

    @cached_property
    def depth(self) -> I64:
        return self.nest.depth()

    @cached_property
    def proper(self) -> bool:
        """Whether no range outlasts its parent: then all ancestors of a call's innermost range contain the call."""
        inside = np.flatnonzero(self.nest.parent != NONE)
        return bool(np.all(self.nest.end[inside] <= self.nest.end[self.nest.parent[inside]]))

    def of_ops(self, call: I64) -> I64:
        """Innermost range of each op by its launching call (a row of `View.calls`, NONE for none)."""
        return self._by_call[call]

    @cached_property
    def _by_call(self) -> I64:
        # One entry more than there are calls: the last, which NONE points to, says that there is none.
        rows = np.full(int(self.calls.max(initial=0)) + 2, NONE, dtype=np.int64)
        rows[self.calls] = self.innermost
        return rows

    def climb(self, innermost: I64, until: I64) -> list[tuple[I64, I64]]:
        """(position, range) for each position's ranges that last until `until`, innermost first, level by level."""
        levels = []
        at = np.flatnonzero(innermost != NONE)
        current = innermost[at]
        while len(at):
            if self.proper:
                levels.append((at, current))
            else:
                holds = self.nest.end[current] >= until[at]
                levels.append((at[holds], current[holds]))
            current = self.nest.parent[current]
            inside = current != NONE
            at, current = at[inside], current[inside]
        return levels


def attribute(view: View) -> Attribution:
    """Attribute every launching call of the view."""
    ranges = view.ranges.filter(pl.col("end_tid").is_null())
    calls = view.calls
    launches = np.zeros(calls.height, dtype=bool)
    launches[view.ops()["call"].drop_nulls().to_numpy()] = True
    used = np.flatnonzero(launches)
    start, end = ints(ranges, "start_ns", "end_ns")
    thread = threads(ranges)
    nest = nesting.nest(thread, start, end)
    launching = calls.select("rank", "tid", "start_ns", "end_ns")[used]
    call_start, call_end = ints(launching, "start_ns", "end_ns")
    enclosing = nest.enclosing(threads(launching), call_start)
    live = np.flatnonzero(enclosing != NONE)
    while len(live):  # a range that closed during the call does not contain it
        live = live[nest.end[enclosing[live]] < call_end[live]]
        enclosing[live] = nest.parent[enclosing[live]]
        live = live[enclosing[live] != NONE]
    return Attribution(ranges, nest, used, enclosing, call_end)


def threads(frame: pl.DataFrame) -> I64:
    """One number per (rank, thread)."""
    rank, tid = ints(frame, "rank", "tid")
    return (rank << 32) | (tid & 0xFFFFFFFF)
