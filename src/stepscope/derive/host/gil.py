"""The interpreter's lock (GIL), where nsys recorded it (`--trace=python-gil`): who waits for it, and who has it."""

from __future__ import annotations

import polars as pl

from stepscope.derive.rank.data import RankData
from stepscope.intervals import Spans, union

_DOMAIN = r"(?i)^gil trace$"
WAITING, HOLDING = r"(?i)^waiting", r"(?i)^holding"


def lock_ranges(data: RankData, which: str) -> pl.DataFrame:
    """Rows of the rank's ranges in which a thread waits for the lock, or has it."""
    ranges = data.ranges
    if ranges["domain"].null_count() == ranges.height or not data.profile.names_with(_DOMAIN).any():
        return ranges.clear()
    domain = pl.Series(data.profile.names_with(_DOMAIN)).gather(ranges["domain"].fill_null(0))
    named = pl.Series(data.profile.names_with(which)).gather(ranges["name"])
    return ranges.filter(domain & ranges["domain"].is_not_null() & named)


def lock_waits(data: RankData, thread: int) -> Spans:
    """When a thread waited for the lock; nothing where that was not recorded."""
    waits = data.once(_waits)
    if not waits.height:
        return Spans.empty()
    waits = waits.filter(pl.col("tid") == thread)
    return union(waits["start_ns"].to_numpy(), waits["end_ns"].to_numpy())


def _waits(data: RankData) -> pl.DataFrame:
    return lock_ranges(data, WAITING)
