"""How many warps a multiprocessor held while a kernel ran, how many it could have, and what keeps it from more.

A launch's blocks share a multiprocessor's registers, shared memory, warps, barriers and places for blocks: the resource
that holds the fewest blocks is the limit. Nsight Compute counts these per resource (section Occupancy).
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.kernel.measured import Kernels
from stepscope.model.result import Col

COLUMNS = (
    Col("achieved_occupancy_pct", "warps that a multiprocessor held, of those it has room for; as measured"),
    Col("theoretical_occupancy_pct", "the most that the launch allows: its block size, registers, shared memory"),
    Col("occupancy_limiter", "the resource that allows no more; null where all warps fit, or it was not measured"),
)
_LIMIT = r"launch__occupancy_limit_(\w+)"
_NAMES = {"shared_mem": "shared memory", "blocks": "blocks per multiprocessor", "warps": "block size"}
#: The details page rounds to two decimals.
_FULL = 99.99


def occupancies(kernels: Kernels) -> pl.DataFrame:
    """`COLUMNS`, a row per measured kernel; null where the section was not collected."""
    achieved = kernels.value("sm__warps_active.avg.pct_of_peak_sustained_active")
    most = kernels.value("sm__maximum_warps_per_active_cycle_pct")
    limits = {match[1]: values for match, values in kernels.named(_LIMIT).items()}
    frame = pl.DataFrame([pl.Series(c.name, v).fill_nan(None) for c, v in zip(COLUMNS, (achieved, most), strict=False)])
    return frame.with_columns(pl.Series(COLUMNS[2].name, _limiters(len(kernels), limits, most), dtype=pl.String))


def _limiters(count: int, limits: dict[str, np.ndarray], most: np.ndarray) -> list[str | None]:
    """Of each kernel: what holds the fewest blocks; resources that hold as few are all named."""
    if not limits:
        return [None] * count
    table = np.stack(list(limits.values()))
    # A resource that a kernel does not use is written as 0 or not at all: it limits nothing.
    table = np.where(np.isnan(table) | (table <= 0), np.inf, table)
    least = table.min(axis=0)
    named = [_NAMES.get(name, name.replace("_", " ")) for name in limits]
    return [
        " and ".join(name for name, held in zip(named, table[:, k], strict=True) if held == least[k])
        if np.isfinite(least[k]) and most[k] < _FULL
        else None
        for k in range(count)
    ]
