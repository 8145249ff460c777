"""The kernels that were measured, with their metrics as arrays: one row per launch, of all reports of a profile.

The raw and the details page of one report are one measurement, told by the same kernels in the same order with the same
durations: metrics of either are metrics of the kernel.
"""

from __future__ import annotations

import re

import numpy as np
import polars as pl
from msgspec import Struct, field

from stepscope.errors import CannotAnswer
from stepscope.intervals.arrays import F64, I64
from stepscope.model.kernel_names import short_names
from stepscope.model.profile import Profile
from stepscope.model.threshold import Threshold

#: The details page rounds to two decimals of a scaled unit.
_ROUNDING = 0.006
#: No counter is negative, and none is larger: what a damaged file says is as good as nothing.
_MOST = 1e30
_OF_PEAK = "pct_of_peak_sustained"
MOST_OF_PEAK = Threshold(
    110.0,
    "% of the peak",
    "counters of several passes differ by some per cent: more was not reached, the counter or the time is wrong",
    ("tests/derive/kernel/test_roofline_maths.py",),
)
_SHAPE = [f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"]


class Kernels(Struct, frozen=True):
    """Measured kernels: `frame` has what they are (a row each), `metrics` by name what was measured, NaN where not."""

    frame: pl.DataFrame
    metrics: dict[str, F64]
    #: by source: others that hold the same measurement
    twins: dict[int, list[int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.frame.height

    def value(self, *names: str) -> F64:
        """The first of these metrics that a kernel has, NaN where it has none."""
        return first(self.unknown(), *(self.metrics[name] for name in names if name in self.metrics))

    def unknown(self) -> F64:
        return np.full(len(self), np.nan)

    def named(self, pattern: str) -> dict[re.Match[str], F64]:
        """The metrics whose whole name matches: names are enumerated, never assumed."""
        compiled = re.compile(pattern)
        return {match: values for name, values in self.metrics.items() if (match := compiled.fullmatch(name))}

    @property
    def duration_ns(self) -> F64:
        """How long each took, NaN where that is not known; nothing takes no time."""
        took = self.frame["dur_ns"].cast(pl.Float64).fill_null(np.nan).to_numpy()
        return np.where(took > 0, took, np.nan)


def first(*values: F64) -> F64:
    """By kernel, the first of these that is known; NaN where none is."""
    merged = values[0]
    for other in values[1:]:
        merged = np.where(np.isnan(merged), other, merged)
    return merged


def ratio(part: F64, whole: F64) -> F64:
    """NaN where there is nothing to divide by: reports may be damaged, or lack either."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(whole > 0, part / whole, np.nan)


def need_measured(profile: Profile) -> None:
    """Refuse questions about the inside of kernels where none was measured."""
    if not profile.has("measured"):
        raise CannotAnswer(
            "no kernel of this profile was measured by Nsight Compute",
            "`stepscope capture ncu --from PROFILE -- COMMAND` measures those that take the time; then give its "
            "report along with the profile",
        )


def measured_kernels(profile: Profile) -> Kernels:
    """All measured kernels of the profile, in the order of files and reports."""
    need_measured(profile)
    kernels = _named(profile)
    of = _measurement(kernels, profile.table("metrics"))
    kernels = kernels.with_columns(pl.Series("measurement", [of[source] for source in kernels["source"].to_list()]))
    kept = kernels.filter(pl.col("source") == pl.col("measurement"))
    for column in ("gpu", "cc", "nvtx"):  # a page may lack what the other page of the report has
        stated = kernels.drop_nulls(column).unique(["measurement", "kernel"], keep="first")
        fill = stated.select("measurement", "kernel", pl.col(column).alias("other"))
        kept = kept.join(fill, on=["measurement", "kernel"], how="left", maintain_order="left")
        kept = kept.with_columns(pl.coalesce(column, "other").alias(column)).drop("other")
    kept = kept.drop("measurement").with_row_index("row")
    twins: dict[int, list[int]] = {}
    for source, owner in of.items():
        if source != owner:
            twins.setdefault(owner, []).append(source)
    return Kernels(kept, _metrics(profile, kept, of), twins)


def _named(profile: Profile) -> pl.DataFrame:
    """The table with texts, and short names."""
    frame, names = profile.table("measured", detail=True), profile.names
    for column in ("name", "gpu", "cc", "nvtx", "mangled_name"):
        frame = frame.with_columns(_texts(frame[column], names).alias(column))
    return frame.with_columns(short=short_names(frame["name"]))


def _texts(ids: pl.Series, names: pl.Series) -> pl.Series:
    known = ids.is_not_null()
    texts = names.gather(ids.fill_null(0)) if len(names) else ids.cast(pl.String)
    return pl.select(pl.when(known).then(texts)).to_series()


def _measurement(kernels: pl.DataFrame, metrics: pl.DataFrame) -> dict[int, int]:
    """By source: the source that says most of the same measurement, which may be itself."""
    parts: dict[int, pl.DataFrame] = {
        int(source): part for (source,), part in kernels.group_by(["source"], maintain_order=True)
    }
    metrics_of = dict(metrics.group_by("source").len().iter_rows())
    parts = {source: parts[source] for source in sorted(parts, key=lambda source: -metrics_of.get(source, 0))}
    of: dict[int, int] = {}
    for source, part in parts.items():
        same = (first for first in parts if first in of and of[first] == first and _same(parts[first], part))
        of[source] = next(same, source)
    return of


def _same(a: pl.DataFrame, b: pl.DataFrame) -> bool:
    what = ["short", *_SHAPE]
    if a.height != b.height or not a.select(what).equals(b.select(what)):
        return False
    one, other = (frame["dur_ns"].cast(pl.Float64).fill_null(np.nan).to_numpy() for frame in (a, b))
    return bool(np.allclose(one, other, rtol=_ROUNDING, equal_nan=True))


def _metrics(profile: Profile, kernels: pl.DataFrame, of: dict[int, int]) -> dict[str, F64]:
    """By name, a value per kernel; of two pages the first that has one."""
    metrics = profile.table("metrics").filter(pl.col("value").is_between(0.0, _MOST))
    if metrics.height == 0:
        return {}
    owner = pl.DataFrame(
        {"source": list(of), "owner": list(of.values())}, schema={"source": pl.Int32, "owner": pl.Int32}
    )
    rows = kernels.select(owner="source", kernel="kernel", row="row")
    long = metrics.join(owner, on="source", how="left", maintain_order="left")
    long = long.join(rows, on=["owner", "kernel"], how="inner", maintain_order="left")
    ids, at = np.unique(long["name"].to_numpy(), return_inverse=True)
    table = np.full((len(ids), kernels.height), np.nan)
    row: I64 = long["row"].cast(pl.Int64).to_numpy()
    table[at[::-1], row[::-1]] = long["value"].to_numpy()[::-1]  # backwards: the first page has the last word
    names = profile.names.gather(ids).to_list()
    shares = np.array([_OF_PEAK in name for name in names])[:, None]
    table[shares & (table > MOST_OF_PEAK.value)] = np.nan
    return dict(zip(names, table, strict=True))
