"""Sums, means, medians and deviations as nsys rounds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from stepscope.nsys.reports.grouping import grouped
from stepscope.nsys.reports.spec import Args, Query, Rows
from stepscope.nsys.reports.view import View

#: Rows to be summed up by a report.
Source = Callable[[View, Args], Rows]


def round1(value: pl.Expr) -> pl.Expr:
    """One decimal, halves up, as SQLite rounds. All values are at least zero."""
    return value.map_batches(_round1, return_dtype=pl.Float64)


def _round1(values: pl.Series) -> pl.Series:
    # NumPy divides; Polars would multiply by 0.1, and 25.7 would read 25.700000000000003.
    rounded = np.floor(values.cast(pl.Float64).to_numpy() * 10 + 0.5) / 10
    return pl.Series(values.name, rounded, nan_to_null=True)


def moments(value: str, prefix: str = "") -> list[pl.Expr]:
    """Aggregates of a column that ignore nulls: total, n, med, min, max, std."""
    v = pl.col(value)
    return [
        v.sum().alias(prefix + "total"),
        v.count().alias(prefix + "n"),
        v.median().alias(prefix + "med"),
        v.min().alias(prefix + "min"),
        v.max().alias(prefix + "max"),
        v.std(ddof=1).alias(prefix + "std"),
    ]


def mean(prefix: str = "") -> pl.Expr:
    """Exact: the sum is an integer. Null where there is nothing to average."""
    n = pl.col(prefix + "n")
    return pl.when(n > 0).then(pl.col(prefix + "total") / n)


def deviation(prefix: str = "") -> pl.Expr:
    """The sample deviation; fewer than two values have none, and nsys says 0."""
    return pl.col(prefix + "std").fill_null(0.0)


def five(prefix: str = "") -> list[pl.Expr]:
    """Avg, Med, Min, Max, StdDev."""
    return [
        round1(mean(prefix)).alias(prefix + "avg"),
        round1(pl.col(prefix + "med")).alias(prefix + "med"),
        pl.col(prefix + "min"),
        pl.col(prefix + "max"),
        round1(deviation(prefix)).alias(prefix + "std"),
    ]


def share() -> pl.Expr:
    """A row's part of the sum of all rows' totals, in percent."""
    total = pl.col("total")
    return round1(total * 100.0 / total.sum()).alias("share")


def time_sum(source: Source, *keys: str, ties: Sequence[str] = (), show: Sequence[str | pl.Expr] = ()) -> Query:
    """Durations by `keys`: share, total, count, avg, med, min, max, std, then `show` (by default the keys).

    Longest total first; rows of one total by `ties`, then by the keys, the last first.
    """

    def query(view: View, args: Args) -> pl.DataFrame:
        rows = source(view, args)
        summed = rows.decoded(grouped(rows.frame, keys, moments("duration")))
        order = ["total", *ties, *(k for k in reversed(keys) if k not in ties)]
        summed = summed.sort(order, descending=[True] + [False] * (len(order) - 1))
        return summed.select(share(), "total", "n", *five(), *(show or keys))

    return query


def size_sum(source: Source, key: str) -> Query:
    """Bytes by `key`, not rounded: output shows megabytes."""

    def query(view: View, args: Args) -> pl.DataFrame:
        rows = source(view, args)
        summed = rows.decoded(grouped(rows.frame, [key], moments("bytes")))
        summed = summed.sort("total", key, descending=[True, False])
        return summed.select("total", "n", mean().alias("avg"), "med", "min", "max", deviation().alias("std"), key)

    return query
