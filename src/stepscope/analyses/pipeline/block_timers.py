"""Block timers of a log: where the time went, by name (semantics §8)."""

from __future__ import annotations

import polars as pl

from stepscope.model.profile import Profile
from stepscope.model.result import Col

BLOCKS = (
    Col("block", "what was timed"),
    Col("n", "how often"),
    Col("total_ns", "time in it"),
    Col("mean_ns", "per run"),
    Col("share_pct", "share of all blocks' time"),
    Col("synchronized", "the timers waited for the GPU"),
    Col("use", "what the figure is good for"),
)
ATTRIBUTION, TIMING = "attribution only", "host time"


def blocks(profile: Profile) -> pl.DataFrame:
    """`BLOCKS`: the share of each block, longest first."""
    table = profile.table("timers")
    table = table.with_columns(profile.names.gather(table["name"]).alias("block"))
    shares = table.group_by("block").agg(
        pl.len().cast(pl.Int64).alias("n"),
        pl.col("dur_ns").sum().alias("total_ns"),
        pl.col("dur_ns").mean().round().cast(pl.Int64).alias("mean_ns"),
        pl.col("synchronized").any(),
    )
    shares = shares.with_columns(
        (100.0 * pl.col("total_ns") / pl.col("total_ns").sum()).alias("share_pct"),
        pl.when("synchronized").then(pl.lit(ATTRIBUTION)).otherwise(pl.lit(TIMING)).alias("use"),
    )
    return shares.sort(["total_ns", "block"], descending=[True, False]).select([c.name for c in BLOCKS])
