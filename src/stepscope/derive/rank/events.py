"""Which record of an event a wait is for: events are reused, so it is the latest one before the wait."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.rank.tables import RankTables
from stepscope.intervals.arrays import I64, NONE


def record_of(syncs: pl.DataFrame) -> I64:
    """By row of one rank's `syncs`: the row of the record that a stream or the host waits for there.

    NONE for records themselves, for waits without an event, and where the record is not in the trace.
    """
    events = syncs.select("event", "start_ns", "kind").with_row_index("row").drop_nulls("event").sort("start_ns", "row")
    is_record = pl.col("kind") == "record"
    records = events.filter(is_record).select("event", "start_ns", pl.col("row").alias("record"))
    waits = events.filter(~is_record).select("event", "start_ns", "row")
    met = waits.join_asof(records, on="start_ns", by="event", strategy="backward", check_sortedness=False)
    met = met.drop_nulls("record")
    rows = np.full(syncs.height, NONE, dtype=np.int64)
    rows[met["row"].to_numpy()] = met["record"].to_numpy()
    return rows


def records_of(data: RankTables) -> I64:
    """The same of a rank's `syncs` as they were recorded."""
    return data.once(_recorded)


def _recorded(data: RankTables) -> I64:
    return record_of(data.syncs)
