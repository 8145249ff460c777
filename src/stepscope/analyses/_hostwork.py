"""What the host did while the GPU waited, where the trace tells: OS-runtime calls, torch ops, Python functions.

Of everything recorded on the launching thread that overlaps a stretch, the narrowest record that still covers most of
it says it best: `read` rather than the training loop around it.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.analyses._causes import HOST, Pieces
from stepscope.analyses._rank import RankData
from stepscope.model.nesting import NONE, nest
from stepscope.model.profile import Profile


def doing(profile: Profile, data: RankData, found: Pieces) -> pl.Series:
    """Innermost host record at the middle of each `host` stretch, as `kind: name`; null where nothing was recorded."""
    nothing = pl.Series("doing", [None] * len(found.start), dtype=pl.String)
    if not profile.has("host"):
        return nothing
    host = data.host
    asked = np.flatnonzero(found.cause == HOST)
    if host.height == 0 or len(asked) == 0:
        return nothing
    start, end, tid = (host[c].cast(pl.Int64).to_numpy() for c in ("start_ns", "end_ns", "tid"))
    middle = (found.start + found.end)[asked] // 2
    at = nest(tid, start, end).enclosing(found.tid[asked], middle)
    hit = at != NONE
    rows = at[hit]
    text = pl.select(
        pl.concat_str(
            host["kind"].gather(rows).cast(pl.String), pl.lit(": "), profile.names.gather(host["name"].gather(rows))
        )
    ).to_series()
    every = np.full(len(found.start), None, dtype=object)
    every[asked[hit]] = text.to_list()
    return pl.Series("doing", every.tolist(), dtype=pl.String)
