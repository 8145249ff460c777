"""What sampled metrics say of groups of kernels: the mean of each over the samples that are a group's own."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.kernel.sampled import ACTIVITY, Sampled, sampled
from stepscope.derive.rank.data import RankData
from stepscope.intervals.arrays import F64, I64, NONE
from stepscope.model.profile import Profile
from stepscope.model.ranks import sharing
from stepscope.model.threshold import Threshold

FILLED = Threshold(
    95.0,
    "% of a sample's time",
    "a sampled metric is the whole GPU's: what a kernel does not fill, idle time or another kernel falsifies",
    ("tests/derive/kernel/test_sampled.py",),
)
ENOUGH_SAMPLES = Threshold(
    3.0,
    "samples",
    "each is exact for its own time, and the first of a kernel has its start in it: one alone says little of the rest",
    ("tests/derive/kernel/test_sampled.py", "h200/hf/hf1_rich.sqlite"),
)


class Activities(Struct, frozen=True):
    """The percentages of `ACTIVITY` that were sampled on one rank's device, all at the same times."""

    start: I64
    end: I64
    values: dict[str, F64]

    @property
    def period_ns(self) -> int:
        return int(np.median(self.end - self.start)) if len(self.start) else 0

    def mean(self, start: int | None, end: int | None) -> dict[str, float | None]:
        """The mean of each over a window; null where samples cover less than half of it."""
        if start is None or end is None:
            return dict.fromkeys(self.values)
        edges = np.array([start]), np.array([end])
        means = {c: float(Sampled(self.start, self.end, v).mean(*edges)[0]) for c, v in self.values.items()}
        return {c: None if np.isnan(mean) else mean for c, mean in means.items()}


def activities(profile: Profile, data: RankData) -> Activities | None:
    """None where nothing was sampled, or where ranks share the GPU: samples are then nobody's in particular."""
    if not profile.has("counters") or any(data.rank in ranks for ranks in sharing(profile.ranks)):
        return None
    series = {column: sampled(profile, data, pattern) for column, pattern in ACTIVITY.items()}
    there = {column: metric for column, metric in series.items() if metric is not None and len(metric.start)}
    if not there:
        return None
    first = next(iter(there.values()))
    values = {column: metric.mean(first.start, first.end) for column, metric in there.items()}
    return Activities(first.start, first.end, values)


def activity_of(data: RankData, metrics: Activities, ops: I64, group: I64, groups: int) -> pl.DataFrame:
    """`metric_samples` and the mean of each metric by group of ops; null where too few samples are a group's own.

    A sample is a group's where its ops fill the sample's time and no other op of the rank runs in it.
    """
    columns = {column: np.full(groups, np.nan) for column in ACTIVITY}
    count = np.zeros(groups, dtype=np.int64)
    if len(ops) and len(metrics.start):
        of_op = np.full(len(data.start), NONE, dtype=np.int64)
        of_op[ops] = group
        sample, mine = _own_samples(data, metrics, of_op)
        count += np.bincount(mine, minlength=groups)
        for column, values in metrics.values.items():
            columns[column] = np.bincount(mine, weights=values[sample], minlength=groups)
        with np.errstate(divide="ignore", invalid="ignore"):
            columns = {
                column: np.where(count >= ENOUGH_SAMPLES.value, v / count, np.nan) for column, v in columns.items()
            }
    return pl.DataFrame({"metric_samples": count, **columns}).with_columns(pl.col(list(ACTIVITY)).fill_nan(None))


def _own_samples(data: RankData, metrics: Activities, of_op: I64) -> tuple[I64, I64]:
    """Samples that are of one group alone, and of which."""
    asked = np.flatnonzero(of_op != NONE)
    low, high = data.start[asked].min(), data.end[asked].max()
    near = np.flatnonzero((data.end > low - metrics.period_ns) & (data.start < high + metrics.period_ns))
    start, end = data.start[near], data.end[near]
    first = np.searchsorted(metrics.end, start, side="right")
    count = np.maximum(np.searchsorted(metrics.start, end) - first, 0)
    op = np.repeat(np.arange(len(near)), count)
    sample = np.arange(len(op)) - np.repeat(np.cumsum(count) - count, count) + first[op]
    ran = np.minimum(end[op], metrics.end[sample]) - np.maximum(start[op], metrics.start[sample])
    shares = (
        pl.DataFrame({"sample": sample, "group": of_op[near][op], "ran": ran})
        .group_by("sample", "group")
        .agg(pl.col("ran").sum())
        .with_columns(all=pl.col("ran").sum().over("sample"))
    )
    length = (metrics.end - metrics.start)[shares["sample"].to_numpy()]
    ran, every = shares["ran"].to_numpy(), shares["all"].to_numpy()
    full = (ran >= FILLED.share * length) & (every - ran <= (1 - FILLED.share) * length)
    own = shares.filter(pl.Series(full) & (pl.col("group") != NONE))
    return own["sample"].to_numpy(), own["group"].to_numpy()
