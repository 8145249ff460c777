"""The table behind `collectives`: waits, transfers and bandwidths of every meeting."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.comm.across import Across
from stepscope.derive.comm.axes import AXIS_OF, axes_of
from stepscope.derive.comm.kinds import bus_factors
from stepscope.model.ranks import ranks_text


def table_of(a: Across) -> pl.DataFrame:
    """One row per meeting, in order of the last arrival."""
    first_start, last_end, first_end = (
        f.reduceat(x, a.first) for f, x in ((np.minimum, a.start), (np.maximum, a.end), (np.minimum, a.end))
    )
    alone = pl.Series(a.count < 2)
    label = {c: comm.label for c, comm in a.matched.communicators.items()}
    members = {c: ranks_text(comm.members) for c, comm in a.matched.communicators.items()}
    axis_of = axes_of(a.matched.communicators, a.meetings, a.ranks)
    axes = {c: axis.name for c, axis in axis_of.items()}
    stated = {c: axis.name for c, axis in axis_of.items() if axis.known_by in ("labels", "name")}
    waits = a.count * a.last - np.add.reduceat(a.start, a.first)
    n = pl.col("size").cast(pl.Float64)
    only = pl.lit(alone)
    table = a.meetings.with_columns(
        pl.col("communicator").replace_strict(label, default=None, return_dtype=pl.String).alias("group"),
        pl.when(pl.col("src") >= 0)
        .then(pl.concat_str("src", pl.lit(">"), "dst"))
        .otherwise(pl.col("communicator").replace_strict(members, default=None, return_dtype=pl.String))
        .alias("ranks"),
        pl.Series("start_ns", a.last),
        pl.when(~only).then(pl.Series(a.transfer)).alias("transfer_ns"),
        pl.when(~only).then(pl.Series(a.last - first_start)).alias("max_wait_ns"),
        pl.when(~only).then(pl.Series(a.rank[a.last_side])).alias("last_rank"),
        pl.when(~only).then(pl.Series(a.rank[a.first_side])).alias("first_rank"),
        pl.when(~only).then(pl.Series(last_end - first_end)).alias("skew_ns"),
        pl.when(~only).then(pl.Series(waits)).alias("wait_ns"),
        pl.col("kind").alias("op"),
        # What labels or the name say is the group's axis, as in `mesh`; of other groups each op may serve another.
        pl.coalesce(
            pl.col("communicator").replace_strict(stated, default=None, return_dtype=pl.String),
            pl.col("purpose").replace_strict(AXIS_OF, default=None, return_dtype=pl.String),
            pl.col("communicator").replace_strict(axes, default=None, return_dtype=pl.String),
        ).alias("axis"),
    )
    pids = dict(a.ranks.select("rank", "pid").iter_rows())
    table = table.with_columns(
        pl.col("last_rank").replace_strict(pids, default=None, return_dtype=pl.Int64).alias("pid")
    )
    speed = pl.when(pl.col("transfer_ns") > 0).then(pl.col("bytes") / pl.col("transfer_ns"))
    table = table.with_columns(speed.alias("algbw_gbps"))
    table = table.with_columns((pl.col("algbw_gbps") * bus_factors(pl.col("kind"), n)).alias("busbw_gbps"))
    return table.sort("start_ns", "group", "seq", maintain_order=True)
