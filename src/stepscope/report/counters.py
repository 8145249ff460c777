"""The GPU's sampled metrics as lanes of the timeline: how busy it was, what its memory did, its clock.

A page stays light: of each metric so many marks as a screen has pixels, each with the least and the largest of the
samples that it stands for. The other metrics are in `timeline --by counter`, and in `serve`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from stepscope.derive.kernel.sampled import ACTIVITY, CLOCK, in_megahertz
from stepscope.errors import CannotAnswer
from stepscope.report.asker import Asker
from stepscope.report.lanes import COUNTER, COUNTERS, FULL

#: Marks of a lane.
MOST = 2_000
_SHOWN = (*ACTIVITY.values(), CLOCK)
_PERCENT = 100.0


@dataclass(frozen=True)
class Counters:
    """Marks of all lanes; and by level, the name of the metric with its largest value."""

    marks: pl.DataFrame
    labels: list[tuple[str, float]]


def sampled(asker: Asker, which: dict[str, Any], parts: pl.DataFrame, origin: int) -> Counters:
    """Lanes of what was sampled; none where nothing was."""
    try:
        rows = asker.ask("timeline", by="counter", **which).rows
    except CannotAnswer:
        return Counters(pl.DataFrame(), [])
    wanted = [name for pattern in _SHOWN for name in _matching(rows, pattern)]
    if not wanted:
        return Counters(pl.DataFrame(), [])
    rows = rows.filter(pl.col("counter").is_in(wanted)).with_columns(in_megahertz())
    most = dict(rows.group_by("counter").agg(pl.col("value").max()).iter_rows())
    labels = [(_short(name), _PERCENT if "%" in name else max(most[name], 1e-9)) for name in wanted]
    begin = pl.col("common_start_ns")
    span = parts.select(begin.min(), end=(begin + pl.col("dur_ns")).max()).row(0)
    width = max(1, (span[1] - span[0]) // MOST)
    level = pl.col("counter").replace_strict({name: k for k, name in enumerate(wanted)}, return_dtype=pl.Int64)
    full = pl.col("level").replace_strict({k: value for k, (_, value) in enumerate(labels)}, return_dtype=pl.Float64)
    binned = (
        rows.select("rank", level.alias("level"), begin, end=begin + pl.col("dur_ns"), value="value")
        .with_columns(begin.clip(*span), pl.col("end").clip(*span))
        .with_columns(bin=(begin - span[0]) // width)
        .group_by("rank", "level", "bin", maintain_order=True)
        .agg(begin.min(), pl.col("end").max(), low=pl.col("value").min(), high=pl.col("value").max())
    )
    low, high = ((pl.col(c) / full * FULL).clip(0, FULL).round(0).cast(pl.Int64) for c in ("low", "high"))
    none = pl.lit(0, pl.Int64)
    marks = binned.select(
        "rank",
        pl.lit(COUNTERS, pl.Int64).alias("group"),
        "level",
        (begin - origin).alias("start"),
        (pl.col("end") - origin).alias("end"),
        pl.lit(COUNTER, pl.Int64).alias("kind"),
        none.alias("name"),
        low.alias("range"),  # the least of a mark, where an op has its range
        none.alias("stage"),
        none.alias("outside"),
        high.alias("n"),
    )
    return Counters(marks, labels)


def _short(name: str) -> str:
    """What fits beside a lane: `SMs Active, %`."""
    return name.replace(" [Throughput %]", ", %").replace(" Frequency [MHz]", ", MHz")


def _matching(rows: pl.DataFrame, pattern: str) -> list[str]:
    """The first metric of that name."""
    names = rows["counter"].unique(maintain_order=True) if rows.height else pl.Series([], dtype=pl.String)
    return names.filter(names.str.contains(pattern)).to_list()[:1]
