"""Which range is innermost from when on: tables of changes that `enclosing_range` looks moments up in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from stepscope.intervals.arrays import NONE
from stepscope.model.profile import Profile

#: The thread of ranges without one.
NO_THREAD = -(1 << 62)


def _of_threads(profile: Profile) -> pl.DataFrame:
    """Of the push/pop ranges of each thread."""
    own = _own_ranges(profile).filter(pl.col("kind") == "pushpop")
    return _changes(own.with_columns(pl.col("tid").cast(pl.Int64).fill_null(NO_THREAD)), "rank", "tid")


def _of_ranks(profile: Profile) -> pl.DataFrame:
    """Of all ranges of each rank, whichever thread they are of."""
    return _changes(_own_ranges(profile), "rank")


HIDDEN: dict[str, Callable[[Profile], pl.DataFrame]] = {
    "_tops_of_threads": _of_threads,
    "_tops_of_ranks": _of_ranks,
}


def _own_ranges(profile: Profile) -> pl.DataFrame:
    from stepscope.sql.catalogue import catalogue

    frame, _ = catalogue()["ranges"].make(profile)
    return frame.filter(pl.col("own") & (pl.col("start_ns") < pl.col("end_ns")))


def _changes(ranges: pl.DataFrame, *group: str) -> pl.DataFrame:
    """By group, the name that is on top from `since_ns` on; null from where no range is open."""
    ranges = ranges.sort("start_ns", "end_ns", "nr", descending=[False, True, False])  # what is on top comes last
    edges = pl.concat(
        ranges.select(*group, pl.col(edge).alias("since_ns")) for edge in ("start_ns", "end_ns")
    ).with_row_index("edge")
    edges = edges.with_columns(pl.struct(*group, "since_ns").rank("dense").cast(pl.Int64).sub(1).alias("place"))
    first, last = np.split(edges["place"].to_numpy(), 2)
    top = tops(first, last)
    moments = edges.unique("place", keep="any").sort("place").select(*group, "since_ns")
    named = pl.Series("top", top)
    name = ranges["name"].gather(pl.Series(np.maximum(top, 0))) if ranges.height else ranges["name"]
    return moments.with_columns(name.alias("name")).with_columns(
        pl.when(named != NONE).then(pl.col("name")).alias("name")
    )


def tops(first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """For each place the last of the intervals [first, last) over it; `NONE` where there is none.

    An interval is two blocks of a power of two, which may overlap; blocks are then halved, largest first.
    """
    places = int(last.max()) + 1 if len(last) else 0
    level = np.frexp(last - first)[1] - 1
    number = np.arange(len(first), dtype=np.int64)
    upper = np.full(places, NONE, dtype=np.int64)
    for k in range(int(level.max()) if len(level) else 0, -1, -1):
        here = level == k
        np.maximum.at(upper, first[here], number[here])
        np.maximum.at(upper, last[here] - (1 << k), number[here])
        if k:
            half = 1 << (k - 1)
            lower = upper.copy()
            np.maximum(lower[half:], upper[:-half], out=lower[half:])
            upper = lower
    return upper
