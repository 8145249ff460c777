"""Whether a rank makes the launches that its peers make, and how long one of them takes beside theirs.

A rank with more to do launches more kernels, or larger ones; on a slow GPU the same launches take longer. Launches are
the same where name and grid are. Where grids differ, time per block tells. Kernels whose grid does not follow their
input (persistent ones fill the GPU whatever there is to do) tell nothing on a rank whose other kernels are of other
sizes than its peers'.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.intervals.arrays import F64, I64
from stepscope.model.threshold import Threshold

SAME_SIZE = Threshold(
    1.02,
    "times the blocks of a launch",
    "ranks that do the same work launch the same grids; a batch of 17 instead of 16 is 1.06 times as large",
    ("tests/derive/peers/test_compute.py",),
)
OTHER_SIZES = Threshold(
    5.0,
    "% of the compute",
    "where so much of it is in launches of other sizes, the same grids elsewhere may stand for other sizes, too",
    ("tests/derive/peers/test_compute.py",),
)


#: Per kernel name of a rank: `pace`, how many times as long a like launch takes as those of its peers, and `size`, how
#: many times as large a launch is. Null where nothing tells.
LIKE = ("pace", "size")


def like_launches(sized: pl.DataFrame) -> pl.DataFrame:
    """`LIKE` per rank and name, from kernels per rank, name and grid (`compute.KERNELS`) with `group` and `peers`."""
    table = sized.group_by("rank", "group", "peers", "name", "blocks", maintain_order=True).agg(
        pl.col("n", "ns").sum(), (pl.col("ns").sum() / pl.col("n").sum()).alias("mean")
    )
    table = table.with_columns(pl.Series("like_mean", _of_peers(table, ["name", "blocks"], "mean")).fill_nan(None))
    shared = pl.col("like_mean").is_not_null()
    work = (pl.col("n") * pl.col("blocks")).sum()
    names = table.group_by("rank", "group", "peers", "name", maintain_order=True).agg(
        pl.col("n", "ns").sum(),
        pl.col("ns").filter(shared).sum().alias("shared_ns"),
        (pl.col("n") * pl.col("like_mean")).filter(shared).sum().alias("expected_ns"),
        (work / pl.col("n").sum()).alias("each"),
        (pl.col("ns").sum() / work).alias("per_block"),
        pl.col("blocks").min().alias("least_blocks"),
    )
    known = pl.col("least_blocks") > 0
    names = names.with_columns(
        (pl.col("each") / pl.Series(_of_peers(names, ["name"], "each"))).alias("size"),
        (pl.col("per_block") / pl.Series(_of_peers(names, ["name"], "per_block"))).alias("by_block"),
    ).with_columns(pl.when(known).then(pl.col("size", "by_block").fill_nan(None)))
    resized = ((pl.col("size") - 1).abs() > SAME_SIZE.value - 1).fill_null(False)
    # A name that no peer runs was chosen for another size, or is other work: either way nothing to compare it with.
    unlike = pl.col("ns").filter(resized | pl.col("size").is_null() & known).sum().over("rank")
    differs = (pl.col("ns").filter(resized).sum().over("rank") > 0) & (
        unlike > OTHER_SIZES.share * pl.col("ns").sum().over("rank")
    )
    per_launch = pl.when(pl.col("expected_ns") > 0).then(pl.col("shared_ns") / pl.col("expected_ns"))
    pace = pl.when(resized).then("by_block").when(differs.not_()).then(per_launch)
    return names.select("rank", "name", pace.alias("pace"), pl.when(resized).then("size").alias("size"))


def median_of_others(table: pl.DataFrame, key: list[str], column: str) -> F64:
    """For every row, the median of the column over the other rows with its key; NaN where there is none."""
    values = table[column].cast(pl.Float64).to_numpy()
    group = table.select(pl.struct(key).rank("dense")).to_series().cast(pl.Int64).to_numpy() - 1
    order = np.lexsort((values, group))
    ordered, size = values[order], np.bincount(group)
    first = np.cumsum(size) - size
    start, others = first[group[order]], size[group[order]] - 1
    place = np.arange(len(order)) - start
    last = len(ordered) - 1

    def nth(k: I64) -> F64:
        """The k-th of the others: the row itself is skipped."""
        chosen: F64 = ordered[np.clip(start + k + (k >= place), 0, last)]
        return chosen

    middle = np.where(others > 0, (nth((others - 1) // 2) + nth(others // 2)) / 2, np.nan)
    result = np.empty(len(order))
    result[order] = middle
    return result


def _of_peers(table: pl.DataFrame, key: list[str], column: str) -> F64:
    """The median over the others of the group; for a rank without peers, over all others."""
    alone = table["peers"].to_numpy() == 0
    return np.where(alone, median_of_others(table, key, column), median_of_others(table, ["group", *key], column))
