"""Block timers of a log: where the time went, by name (semantics §8)."""

from __future__ import annotations

from typing import Annotated, TypedDict

import polars as pl

from stepscope.model.profile import Profile
from stepscope.model.range_names import short_range
from stepscope.model.result import rows
from stepscope.model.statement import percent
from stepscope.model.units import about


class BlockRow(TypedDict):
    block: Annotated[str, "what was timed"]
    n: Annotated[int, "how often"]
    total_ns: Annotated[int, "time in it"]
    mean_ns: Annotated[int, "per run"]
    share_pct: Annotated[float, "share of all blocks' time, under the same resolution and configuration"]
    synchronized: Annotated[bool, "the timers waited for the GPU"]
    use: Annotated[str, "what the figure is good for"]
    under: Annotated[str, "resolution and configuration, where the log says them"]


class ComparedRow(BlockRow):
    against_mean_ns: Annotated[int, "the same per run in the log of --against"]
    change_ns: Annotated[int, "this log's mean less that one's"]
    against_share_pct: Annotated[float, "share of all blocks' time in the log of --against"]


ATTRIBUTION, TIMING = "attribution only", "host time"


def blocks(profile: Profile, against: Profile | None = None) -> pl.DataFrame:
    """The share of each block, longest first; those that only the other log has come last."""
    table = _shares(profile)
    beside = (
        _shares(against).rename({"mean_ns": "against_mean_ns", "share_pct": "against_share_pct"})
        if against
        else (table.clear().rename({"mean_ns": "against_mean_ns", "share_pct": "against_share_pct"}))
    )
    both = table.join(_paired(table, beside), on=["block", "under"], how="full", coalesce=True, nulls_equal=True)
    both = both.with_columns(
        pl.col("n").fill_null(0),
        (pl.col("mean_ns") - pl.col("against_mean_ns")).alias("change_ns"),
        pl.coalesce("synchronized", "other_synchronized").alias("synchronized"),
        pl.coalesce("use", "other_use").alias("use"),
    )
    both = both.sort(["total_ns", "block", "under"], descending=[True, False, False], nulls_last=True)
    return rows(BlockRow if against is None else ComparedRow, both)


def _paired(table: pl.DataFrame, beside: pl.DataFrame) -> pl.DataFrame:
    """The other log's columns. Where each log has one configuration, these are what the comparison is about."""
    if table["under"].n_unique() == 1 and beside["under"].n_unique() == 1:
        beside = beside.with_columns(pl.lit(table["under"][0], pl.String).alias("under"))
    return beside.select(
        "block",
        "under",
        "against_mean_ns",
        "against_share_pct",
        pl.col("synchronized").alias("other_synchronized"),
        pl.col("use").alias("other_use"),
    )


def _shares(profile: Profile) -> pl.DataFrame:
    table = profile.table("timers")
    table = table.with_columns(
        profile.names.gather(table["name"]).alias("block"), profile.names.gather(table["under"]).alias("under")
    )
    shares = table.group_by("block", "under").agg(
        pl.len().cast(pl.Int64).alias("n"),
        pl.col("dur_ns").sum().alias("total_ns"),
        pl.col("dur_ns").mean().round().cast(pl.Int64).alias("mean_ns"),
        pl.col("synchronized").any(),
    )
    return shares.with_columns(
        (100.0 * pl.col("total_ns") / pl.col("total_ns").sum().over("under")).alias("share_pct"),
        pl.when("synchronized").then(pl.lit(ATTRIBUTION)).otherwise(pl.lit(TIMING)).alias("use"),
    )


def blocks_statement(table: pl.DataFrame) -> str:
    """Every block with its share, by resolution and configuration; then what changed most."""
    own = table.filter(pl.col("n") > 0)
    parts = []
    for (under,), part in own.group_by("under", maintain_order=True):
        total = int(part["total_ns"].sum())
        shares = (f"{short_range(block)} {percent(ns, total)}" for block, ns in part.select("block", "total_ns").rows())
        head = f"under {under}: " if under is not None else ""
        parts.append(f"{head}{', '.join(shares)} of {about(total)} in timers")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}{_changed(own)}."


def _changed(own: pl.DataFrame) -> str:
    if "change_ns" not in own.columns:
        return ""
    paired = own.drop_nulls("change_ns").sort(pl.col("change_ns").abs(), descending=True, maintain_order=True)
    if not paired.height or not paired["change_ns"][0]:
        return ""
    row = paired.row(0, named=True)
    way = "longer" if row["change_ns"] > 0 else "shorter"
    took = f"{about(row['mean_ns'])} per run, not {about(row['against_mean_ns'])}"
    return f"; {short_range(row['block'])} changed most: {took}, {about(abs(row['change_ns']))} {way}"
