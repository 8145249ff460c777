"""No more marks than a page can draw: where there are too many, the shortest of a lane become one, and that is said.

Time is cut into bins. Marks shorter than a bin that begin in the same bin, on the same lane and of the same kind become
one mark, which carries how many it stands for. Bins are doubled until the marks are few enough: a lane cannot hold more
marks of at least a bin's length than bins (streams may run several at once, but few), so it ends.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.intervals.arrays import I64, Mask
from stepscope.intervals.spans import distinct


def thin(marks: pl.DataFrame, most: int, by: tuple[str, ...]) -> tuple[pl.DataFrame, int]:
    """At most about `most` marks, and the bin in ns below which some were merged (0: none was).

    `marks` have `start`, `end`, `n` and the whole numbers `by`; of a merged mark, other columns are the longest one's.
    """
    if marks.height <= most:
        return marks, 0
    short, group, bin_ns = _groups(marks, most, by)
    return _merged(marks, short, group, (marks["end"] - marks["start"]).to_numpy()[short]), bin_ns


def shares(marks: pl.DataFrame, most: int, by: tuple[str, ...]) -> tuple[pl.DataFrame, int]:
    """As `thin`, for marks that follow each other without a gap: no time of a kind is lost or made up.

    The short marks of a bin become one of each kind, one after the other, as long as those of its kind together.
    """
    if marks.height <= most:
        return marks, 0
    short, _, bin_ns = _groups(marks, most, (*by, "kind"))
    key = [*by, "bin"]
    length = pl.col("end") - pl.col("start")
    small = (
        marks.filter(pl.Series(short))
        .with_columns((pl.col("start") // bin_ns).alias("bin"), length.alias("length"))
        .group_by(*key, "kind", maintain_order=True)
        .agg(pl.col("length", "n").sum(), pl.col("start").min(), pl.exclude("length", "n", "start").first())
        .sort(*key, "kind")
    )
    before = pl.col("length").cum_sum().over(key) - pl.col("length")
    small = small.with_columns((pl.col("start").min().over(key) + before).alias("start"))
    small = small.with_columns((pl.col("start") + pl.col("length")).alias("end"))
    return pl.concat([marks.filter(pl.Series(~short)), small.select(marks.columns)]), bin_ns


def _groups(marks: pl.DataFrame, most: int, by: tuple[str, ...]) -> tuple[Mask, I64, int]:
    """Which marks are short, the group of each of those, and the bin: the shortest that leaves few enough."""
    start, length = marks["start"].to_numpy(), (marks["end"] - marks["start"]).to_numpy()
    of = np.zeros(marks.height, np.int64)
    for column in by:
        values = marks[column].to_numpy() - int(marks[column].min())  # type: ignore[arg-type]
        of = of * (int(values.max()) + 1) + values
    span = int(start.max() - start.min()) + 1
    bin_ns = max(1, span // most)
    while True:
        short = length < bin_ns
        group = of[short] * (int(start.max()) // bin_ns + 1) + start[short] // bin_ns
        if bin_ns >= span or marks.height - int(short.sum()) + len(distinct(group)) <= most:
            return short, group, bin_ns
        bin_ns *= 2


def _merged(marks: pl.DataFrame, short: Mask, group: I64, length: I64) -> pl.DataFrame:
    """Long marks as they are, and one mark for each group of short ones."""
    if len(group) == 0:
        return marks
    order = np.lexsort((length, group))
    small = marks.filter(pl.Series(short))[order]
    last = np.flatnonzero(np.r_[group[order][1:] != group[order][:-1], True])  # the longest of each group
    first = np.r_[0, last[:-1] + 1]
    sums = {
        "start": np.minimum.reduceat(small["start"].to_numpy(), first),
        "end": np.maximum.reduceat(small["end"].to_numpy(), first),
        "n": np.add.reduceat(small["n"].to_numpy(), first),
    }
    merged = small[last].with_columns(pl.Series(k, v) for k, v in sums.items())
    return pl.concat([marks.filter(pl.Series(~short)), merged])
