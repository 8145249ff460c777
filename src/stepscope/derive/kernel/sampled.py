"""What the GPU's sampled metrics say of the kernels that ran meanwhile (semantics §15).

A sample holds from its own time to the next one: on an H200, `GR Active` of nsys correlates with the kernels of the
100 µs *after* its timestamp (r = 0.998), not with those before. It is the mean of the whole GPU over that time, so it
is a kernel's only where that kernel, and nothing else, ran through all of it.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.rank.data import RankData
from stepscope.intervals.arrays import F64, I64
from stepscope.model.profile import Profile

#: Columns of percentages, and the metrics that they are: as nsys names them, and torch (which says HBM, and leaves to
#: CUPTI what it has no name for).
ACTIVITY = {
    "sm_active_pct": r"^SMs? Active.*%",
    "tensor_active_pct": r"^Tensor Active.*%|^sm__(inst_executed_)?pipe_tensor(_cycles_active)?\.avg\.pct_of_peak",
    "dram_read_pct": r"^(DRAM|HBM) Read.*%",
    "dram_write_pct": r"^(DRAM|HBM) Write.*%",
}
#: What the GPU draws, by torch's CUPTI backend.
POWER = r"^Power \(W\)$"
#: The clock of the multiprocessors.
CLOCK = r"(?i)(gpc|sm|gr(aphics)?)[ _]?clock"


#: nsys calls the unit of clocks MHz, and writes Hz, of some versions: no clock has so many MHz.
_MEGA = 1e6


def in_megahertz() -> pl.Expr:
    """`value` of a frame of samples with the text of each `counter`: of clocks, in the unit that the text says."""
    in_hertz = pl.col("counter").str.contains("[MHz]", literal=True) & (pl.col("value") > _MEGA)
    return pl.when(in_hertz).then(pl.col("value") / _MEGA).otherwise("value").alias("value")


def megahertz(clock: float) -> float:
    """A sample of a clock in the unit that its name says."""
    return clock / _MEGA if clock > _MEGA else clock


class Sampled(Struct, frozen=True):
    """One metric of one device: `value` holds from `start` to `end`."""

    start: I64
    end: I64
    value: F64

    def mean(self, start: I64, end: I64) -> F64:
        """Its mean over each stretch; NaN where samples cover less than half of it."""
        held, weighed = (self._upto(end, w) - self._upto(start, w) for w in (np.ones(len(self.value)), self.value))
        with np.errstate(divide="ignore", invalid="ignore"):
            mean: F64 = np.where(2 * held >= np.maximum(end - start, 1), weighed / held, np.nan)
        return mean

    def _upto(self, at: I64, weight: F64) -> F64:
        """The integral of `weight` over all samples until each moment."""
        length = self.end - self.start
        total = np.concatenate([[0.0], np.cumsum(length * weight)])
        row = np.searchsorted(self.start, at, side="right") - 1
        inside = np.minimum(at - self.start[np.maximum(row, 0)], length[np.maximum(row, 0)])
        before: F64 = np.where(row >= 0, total[np.maximum(row, 0)] + inside * weight[np.maximum(row, 0)], 0.0)
        return before


def sampled(profile: Profile, data: RankData, pattern: str) -> Sampled | None:
    """The rank's device's samples of the first metric whose name matches; None where there are none."""
    counters = profile.once(_by_rank)[data.rank] if profile.has("counters") else None
    if counters is None or counters.height == 0:
        return None
    named = pl.Series(profile.names_with(pattern)[counters["name"].to_numpy()])
    mine = counters.filter(named & (counters["device"] == (data.device or 0)))
    if mine.height == 0:
        return None
    mine = mine.filter(pl.col("name") == mine["name"][0]).unique("start_ns", keep="first").sort("start_ns")
    start = mine["start_ns"].to_numpy()
    apart = np.diff(start)
    usual = int(np.median(apart)) if len(apart) else 1
    # The last one, and one after which samples are missing, holds as long as usual.
    return Sampled(start, start + np.append(np.minimum(apart, usual), usual), mine["value"].to_numpy())


def _by_rank(profile: Profile) -> dict[int, pl.DataFrame]:
    return dict(profile.by_rank("counters"))
