"""The Python stack of a thread at a moment at which none was taken, by those taken before and after (semantics §13).

What both stacks share, from the outermost frame on, was there all the while: a function that is in both did not return
in between (or returned and was called again from the same line, which reads the same). The innermost shared function
may have moved on from one line to another; then the line lies between the two.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.intervals.arrays import I64, NONE

#: In place of a chain: no stack. Those of Python are numbered below it (`stacks`).
NO_CHAIN = 0


class Looks(Struct, frozen=True):
    """When and on which thread Python stacks were taken: at CUDA calls, or by sampling. Sorted by thread and time."""

    tid: I64
    at: I64
    chain: I64

    @classmethod
    def of(cls, tid: I64, at: I64, chain: I64) -> Looks:
        order = np.lexsort((at, tid))
        return cls(tid[order], at[order], chain[order])

    def around(self, tid: I64, at: I64) -> tuple[I64, I64]:
        """Rows of the last look at or before each moment, and of the first after it, same thread; NONE for none."""
        before, after = (np.full(len(at), NONE, dtype=np.int64) for _ in range(2))
        for thread in np.unique(tid).tolist():
            first, last = np.searchsorted(self.tid, [thread, thread + 1])
            mine = np.flatnonzero(tid == thread)
            place = first + np.searchsorted(self.at[first:last], at[mine], side="right")
            before[mine] = np.where(place > first, place - 1, NONE)
            after[mine] = np.where(place < last, place, NONE)
        return before, after

    def within(self, tid: I64, start: I64, end: I64) -> I64:
        """Row of the first look of the thread in [start, end); NONE where there is none."""
        before, after = self.around(tid, start)
        exact = (before != NONE) & (self.at[before] == start) if len(self.at) else np.zeros(len(start), dtype=bool)
        look = np.where(exact, before, after)
        inside = (look != NONE) & (self.at[look] < end) if len(self.at) else exact
        return np.where(inside, look, NONE)


def shared(frames: pl.DataFrame, before: I64, after: I64) -> tuple[I64, pl.DataFrame]:
    """Chains of what each pair of chains shares, NO_CHAIN for nothing; and the frames of all such chains.

    `frames` has `chain`, `depth` (0 is the innermost), `name`, `file` and `line`. Made ones have `line_to`, too: where
    the innermost shared function was afterwards, at a later line; at an earlier one (a loop) it has no line at all.
    """
    pairs = pl.DataFrame({"before": before, "after": after})
    distinct = pairs.unique(maintain_order=True).filter(pl.max_horizontal("before", "after") < NO_CHAIN)
    lowest = int(frames.select(pl.col("chain").min().fill_null(0)).item())
    distinct = distinct.with_columns(made=lowest - 1 - pl.int_range(pl.len(), dtype=pl.Int64))
    levels = frames.with_columns(level=pl.col("depth").max().over("chain") - pl.col("depth"))
    mine = distinct.join(levels, left_on="before", right_on="chain", how="inner")
    other = levels.select(after="chain", level="level", name="name", file="file", line_to="line")
    both = mine.join(other, on=["after", "level", "name", "file"], how="inner", nulls_equal=True).sort("made", "level")
    moved = pl.col("line").ne_missing(pl.col("line_to"))
    still = (
        # No level is missing from the outermost one on, and no caller has moved to another line.
        (pl.col("level") == pl.int_range(pl.len()).over("made"))
        & (moved.cast(pl.Int64).cum_sum().over("made") - moved.cast(pl.Int64) == 0)
    )
    kept = both.filter(still)
    made = (
        kept.with_columns(depth=pl.col("level").max().over("made") - pl.col("level"))
        .select(
            chain="made", depth=pl.col("depth").cast(pl.Int32), name="name", file="file", line="line", line_to="line_to"
        )
        .with_columns(
            line=pl.when(pl.col("line_to") >= pl.col("line")).then("line"),
            line_to=pl.when(pl.col("line_to") > pl.col("line")).then("line_to"),
        )
    )
    shared = distinct.join(made.select(made="chain").unique(), on="made", how="semi")
    chain = pairs.join(shared, on=["before", "after"], how="left", maintain_order="left")["made"]
    return chain.fill_null(NO_CHAIN).to_numpy(), made
