"""Exact statistics over ranks. Ranks give how often each value occurred, which is small; quartiles need no more.

nsys's recipes merge the quartiles of ranks to what they call approximate ones; from counts they come out exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import polars as pl

from stepscope.intervals.arrays import F64, I64
from stepscope.model.ranks import ranks_text
from stepscope.nsys.reports.statistics import round1

#: What a quartile is: a value that occurred, or the mean of two (nsys's recipes on CUDA and the OS runtime), or
#: interpolated between neighbours (its other ones).
Quartiles = Literal["averaged", "linear"]

FIGURES = ("total", "n", "avg", "q1", "med", "q3", "min", "max", "std")


def counted(frame: pl.DataFrame, value: str) -> pl.DataFrame:
    """Rows of `frame` counted: its other columns, `value` and `n`."""
    return frame.rename({value: "value"}).group_by(pl.all()).agg(pl.len().cast(pl.Int64).alias("n"))


def statistics(counts: pl.DataFrame, keys: Sequence[str], quartiles: Quartiles) -> pl.DataFrame:
    """Per combination of `keys`: `FIGURES` of the values, to one decimal; rows in order of the keys."""
    frame = counts.group_by([*keys, "value"]).agg(pl.col("n").sum()).sort([*keys, "value"], nulls_last=True)
    if frame.height == 0:
        empty = {k: counts.schema[k] for k in keys} | dict.fromkeys(FIGURES, pl.Float64)
        return pl.DataFrame(schema={**empty, "total": pl.Int64, "n": pl.Int64, "min": pl.Int64, "max": pl.Int64})
    group = frame.select(pl.struct(keys).rle_id())["" if not keys else keys[0]].to_numpy()
    first = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    value, n = frame["value"].to_numpy(), frame["n"].to_numpy()
    size = np.add.reduceat(n, first)
    total = np.add.reduceat(value * n, first)
    last = np.r_[first[1:], len(value)] - 1
    mean = total / size
    spread = np.add.reduceat((value - np.repeat(mean, last - first + 1)) ** 2 * n, first)
    at = _Sorted(value, np.cumsum(n), np.cumsum(size) - size)
    if quartiles == "linear":
        q1, med, q3 = (at.linear(q * (size - 1)) for q in (0.25, 0.5, 0.75))
    else:
        q1, med, q3 = (at.averaged(quarters * size) for quarters in (1, 2, 3))
    figures = pl.DataFrame(
        {
            "total": total,
            "n": size,
            "avg": mean,
            "q1": q1,
            "med": med,
            "q3": q3,
            "min": value[first],
            "max": value[last],
            "std": np.sqrt(spread / np.maximum(size - 1, 1)),
        }
    )
    return frame[first].select(keys).hstack(figures.with_columns(round1(pl.col(c)) for c in _ROUNDED))


_ROUNDED = ("avg", "q1", "med", "q3", "std")


class _Sorted:
    """Values of all groups, sorted within each, as if each were written as often as it occurred."""

    def __init__(self, value: I64, upto: I64, base: I64) -> None:
        self._value, self._upto, self._base = value, upto, base

    def _at(self, place: I64) -> I64:
        """The value at each group's `place`, from 0."""
        return self._value[np.searchsorted(self._upto, self._base + place, side="right")]

    def linear(self, place: F64) -> F64:
        low = np.floor(place).astype(np.int64)
        a, b = self._at(low), self._at(np.ceil(place).astype(np.int64))
        values: F64 = a + (b - a) * (place - low)
        return values

    def averaged(self, quarters: I64) -> F64:
        """At a quarter of `quarters`: the value there, or between two of them their mean."""
        place, between = quarters // 4, quarters % 4 == 0
        middle: F64 = (self._at(place - between) + self._at(place)) / 2
        return middle


def with_share(frame: pl.DataFrame, within: Sequence[str] = ()) -> pl.DataFrame:
    """`time_pct`: a row's part of the sum of all rows (of its rank)."""
    total = pl.col("total")
    whole = total.sum().over(list(within)) if within else total.sum()
    return frame.with_columns(round1(pl.when(whole > 0).then(total * 100.0 / whole).otherwise(0.0)).alias("time_pct"))


def extremes(per_rank: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Which ranks had the least and the greatest value of each key, as `--rank` writes them."""
    low, high = pl.col("min").min().over(keys), pl.col("max").max().over(keys)
    marked = per_rank.with_columns((pl.col("min") == low).alias("least"), (pl.col("max") == high).alias("most"))
    figures = marked.group_by(keys, maintain_order=True).agg(
        pl.col("rank").filter(pl.col("least")).sort().alias("min_ranks"),
        pl.col("rank").filter(pl.col("most")).sort().alias("max_ranks"),
    )
    texts = [
        pl.Series(c, [ranks_text(v) for v in figures[c].to_list()], dtype=pl.String) for c in ("min_ranks", "max_ranks")
    ]
    return figures.with_columns(texts)
