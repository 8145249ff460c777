"""No more marks than a page can draw: where there are too many, the shortest of a lane become one, and that is said.

Time is cut into bins. Marks shorter than a bin that lie in the same bin, on the same lane and of the same kind become
one mark, which carries how many it stands for. Bins are doubled until the marks are few enough: a lane cannot hold more
marks of at least a bin's length than bins, so it ends. Lengths and counts on the page stay those of the analyses.
"""

from __future__ import annotations

import polars as pl


def thin(marks: pl.DataFrame, most: int, by: tuple[str, ...]) -> tuple[pl.DataFrame, int]:
    """At most about `most` marks, and the bin in ns below which some were merged (0: none was).

    `marks` have `start`, `end`, `n` and the columns `by`; of a merged mark, the other columns are the longest one's.
    """
    if marks.height <= most:
        return marks, 0
    span = int(marks["end"].max()) - int(marks["start"].min())  # type: ignore[arg-type]
    bin_ns = max(1, span // max(most, 1))
    while True:
        merged = _merged(marks, bin_ns, by)
        if merged.height <= most or bin_ns >= span:
            return merged, bin_ns
        bin_ns *= 2


def _merged(marks: pl.DataFrame, bin_ns: int, by: tuple[str, ...]) -> pl.DataFrame:
    short = (pl.col("end") - pl.col("start")) < bin_ns
    others = [c for c in marks.columns if c not in ("start", "end", "n", *by)]
    small = (
        marks.filter(short)
        .with_columns((pl.col("start") // bin_ns).alias("bin"), (pl.col("end") - pl.col("start")).alias("length"))
        .group_by(*by, "bin", maintain_order=True)
        .agg(
            pl.col("start").min(),
            pl.col("end").max(),
            pl.col("n").sum(),
            *(pl.col(c).sort_by("length", descending=True, maintain_order=True).first() for c in others),
        )
    )
    return pl.concat([marks.filter(~short), small.select(marks.columns)]).sort(*by[:1], "start", maintain_order=True)
