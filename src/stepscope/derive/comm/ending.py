"""Which communication let a kernel end: of the transfers that one kernel holds, the one that was through last.

A trace has no time for a single transfer. It was through when its last rank had arrived and it had taken its time; and
by the end of both kernels, so that a transfer whose other kernel ended well before this one was not the last here.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.comm.across import Across
from stepscope.derive.comm.clock_fit import FLOOR


def ending_sides(a: Across) -> pl.DataFrame:
    """By `rank` and `op`: the `side` whose communication let the op end."""
    pair = ["communicator", "src", "dst"]
    timed = a.meetings.select(*pair, pl.Series("ns", a.transfer))
    takes = timed.select(pl.col("ns").min().over(pair))["ns"].to_numpy()
    through = np.minimum.reduceat(a.end, a.first)[a.meeting]
    open_still = through >= a.end - round(2 * max(a.clocks.residual, FLOOR.ns))
    sides = a.matched.sides.select("rank", "op").with_columns(
        pl.int_range(pl.len()).alias("side"),
        pl.Series("open", open_still),
        pl.Series("arrived", (a.last + takes)[a.meeting]),
    )
    ordered = sides.sort("open", "arrived", maintain_order=True)
    return ordered.unique(["rank", "op"], keep="last").select("rank", "op", "side")
