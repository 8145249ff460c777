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
    rows = np.flatnonzero(short)
    start, end, kind, n = (marks[c].to_numpy()[rows] for c in ("start", "end", "kind", "n"))
    bin_of = start // bin_ns
    place = _lane(marks, by)[rows] * (int(bin_of.max(initial=0)) + 1) + bin_of
    order = np.lexsort((kind, place))
    place, kind = place[order], kind[order]
    first = np.flatnonzero(np.r_[True, (place[1:] != place[:-1]) | (kind[1:] != kind[:-1])][: len(rows)])
    length, marked = (np.add.reduceat(v[order], first) for v in (end - start, n))
    of_bin = np.flatnonzero(np.r_[True, place[first][1:] != place[first][:-1]])
    each = np.diff(np.r_[of_bin, len(first)])
    passed = np.cumsum(length) - length
    begin = np.repeat(np.minimum.reduceat(start[order], first[of_bin]) - passed[of_bin], each) + passed
    drawn = {"start": begin, "end": begin + length, "n": marked}
    small = marks[rows[order[first]]].with_columns(pl.Series(c, v, dtype=marks.schema[c]) for c, v in drawn.items())
    return pl.concat([marks.filter(pl.Series(~short)), small]), bin_ns


def _lane(marks: pl.DataFrame, by: tuple[str, ...]) -> I64:
    """One number for the whole numbers `by` of each mark, in their order."""
    of = np.zeros(marks.height, np.int64)
    for column in by:
        values = marks[column].to_numpy().astype(np.int64)
        of = of * (int(values.max() - values.min()) + 1) + (values - values.min())
    return of


def _groups(marks: pl.DataFrame, most: int, by: tuple[str, ...]) -> tuple[Mask, I64, int]:
    """Which marks are short, the group of each of those, and the bin: the shortest that leaves few enough."""
    start = marks["start"].to_numpy()
    length = marks["end"].to_numpy() - start
    of = _lane(marks, by)
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
    order = np.argsort(group, kind="stable")  # marks are by lane and start: groups are nearly in order
    group, length, rows = group[order], length[order], np.flatnonzero(short)[order]
    first = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    longest = np.repeat(np.maximum.reduceat(length, first), np.diff(np.r_[first, len(group)]))
    at = np.flatnonzero(length == longest)
    named = rows[at[np.searchsorted(at, np.r_[first[1:], len(group)]) - 1]]  # of the longest the last
    how: dict[str, np.ufunc] = {"start": np.minimum, "end": np.maximum, "n": np.add}
    sums = {column: of.reduceat(marks[column].to_numpy()[rows], first) for column, of in how.items()}
    merged: pl.DataFrame = marks[named].with_columns(pl.Series(c, v, dtype=marks.schema[c]) for c, v in sums.items())
    return pl.concat([marks.filter(pl.Series(~short)), merged])
