"""How many warps a multiprocessor held while a kernel ran, how many it could have, and what keeps it from more.

A launch's blocks share a multiprocessor's registers, shared memory, warps, barriers and places for blocks: the resource
that holds the fewest blocks is the limit. Nsight Compute counts these per resource (section Occupancy).
"""

from __future__ import annotations

from typing import Annotated, TypedDict

import numpy as np
import polars as pl

from stepscope.derive.kernel.measured import Kernels


class Occupancy(TypedDict):
    """A measured kernel's; null where the section was not collected. What a launch allows, its shape tells as well."""

    achieved_occupancy_pct: Annotated[
        float | None, "warps that a multiprocessor held, of those it has room for; as measured, else null"
    ]
    theoretical_occupancy_pct: Annotated[
        float | None, "the most that the launch allows: its block size, registers, shared memory"
    ]
    occupancy_limiter: Annotated[
        str | None, "the resource that allows no more; null where all warps fit, or it is not known"
    ]


#: The columns, by what they hold.
ACHIEVED, THEORETICAL, LIMITER = "achieved_occupancy_pct", "theoretical_occupancy_pct", "occupancy_limiter"
SHARES = (ACHIEVED, THEORETICAL)
_LIMIT = r"launch__occupancy_limit_(\w+)"
_NAMES = {"shared_mem": "shared memory", "blocks": "blocks per multiprocessor", "warps": "block size"}
#: The details page rounds to two decimals.
FULL = 99.99


def occupancies(kernels: Kernels) -> pl.DataFrame:
    """`Occupancy`, a row per measured kernel."""
    achieved = kernels.value("sm__warps_active.avg.pct_of_peak_sustained_active")
    most = kernels.value("sm__maximum_warps_per_active_cycle_pct")
    limits = {match[1]: values for match, values in kernels.named(_LIMIT).items()}
    frame = pl.DataFrame([pl.Series(c, v).fill_nan(None) for c, v in zip(SHARES, (achieved, most), strict=True)])
    return frame.with_columns(pl.Series(LIMITER, _limiters(len(kernels), limits, most), dtype=pl.String))


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
        if np.isfinite(least[k]) and most[k] < FULL
        else None
        for k in range(count)
    ]
