"""Synchronization: waits of the host and of streams, and the event records they wait for."""

from __future__ import annotations

import polars as pl

from stepscope.model.columns import SYNC_KIND, Part
from stepscope.model.source import Chunk
from stepscope.sources.nsys.events import Export, chunk, read_events
from stepscope.sources.nsys.mapping import RECORD, SYNC
from stepscope.sources.nsys.records import read_calls
from stepscope.sources.nsys.strings import Names

#: By API name without its `cuda` or `cu`: nsys's own numbers changed their meaning three times.
_KINDS = {
    "EventSynchronize": "event_sync",
    "EventQuery": "event_query",
    "StreamWaitEvent": "stream_wait",
    "StreamSynchronize": "stream_sync",
    "DeviceSynchronize": "context_sync",
    "CtxSynchronize": "context_sync",
    "ThreadSynchronize": "context_sync",
}


def read_syncs(export: Export, part: Part) -> Chunk:
    waits = read_events(export, SYNC, SYNC.columns)
    records = read_events(export, RECORD, RECORD.columns)
    calls = _calls(export, pl.concat([f.select("proc", "correlation") for f in (waits, records)]))
    key = ["proc", "correlation"]
    waits = waits.join(calls.select(*key, "kind"), on=key, how="left", maintain_order="left")
    waits = waits.with_columns(kind=pl.coalesce("kind", _kind_by_shape()))
    timed = records.join(calls.drop("kind"), on=key, how="inner", maintain_order="left")
    export.left_out(RECORD.table, records.height - timed.height, "without a host call in the trace")
    timed = timed.with_columns(kind=pl.lit("record", dtype=SYNC_KIND))
    frame = pl.concat([waits, timed], how="diagonal")
    return chunk(export, frame.with_columns(event=_events(frame)), "syncs", part, Names())


def _calls(export: Export, wanted: pl.DataFrame) -> pl.DataFrame:
    """Times and kind of the calls that `wanted` came from; the first of several with the same correlation."""
    calls = export.calls or read_calls(export, "core")
    key = ["proc", "correlation"]
    pairs = wanted.drop_nulls().unique()
    frame = calls.frame.select(pl.col("proc", "start_ns", "end_ns", "name"), pl.col("correlation").cast(pl.Int64))
    frame = frame.filter(pl.col("correlation").is_in(pairs["correlation"].unique().implode()))
    frame = frame.join(pairs, on=key, how="semi").sort("start_ns", maintain_order=True)
    first = frame.unique(key, keep="first", maintain_order=True)
    kinds = [_KINDS.get(text.removeprefix("cuda").removeprefix("cu")) for text in calls.names]
    kind = pl.Series("kind", kinds, dtype=SYNC_KIND).gather(first["name"]) if len(first) else pl.lit(None, SYNC_KIND)
    return first.select(*key, "start_ns", "end_ns", kind.alias("kind"))


def _kind_by_shape() -> pl.Expr:
    """What a wait is where its call is not in the trace (or is not a plain wait): by what it names."""
    stream, event = pl.col("stream") >= 0, pl.col("event_id").is_not_null()
    return (
        pl.when(stream & event)
        .then(pl.lit("stream_wait", dtype=SYNC_KIND))
        .when(stream)
        .then(pl.lit("stream_sync", dtype=SYNC_KIND))
        .when(event)
        .then(pl.lit("event_sync", dtype=SYNC_KIND))
        .otherwise(pl.lit("context_sync", dtype=SYNC_KIND))
    )


def _events(frame: pl.DataFrame) -> pl.Series:
    """The id that a record shares with the waits for it.

    An event is recorded many times, so its own id does not say which record a wait is for. Exports since 3.17 number
    the records; for older ones a wait belongs to the last record of its event before it, which is CUDA's own rule.
    """
    numbered = frame["event_sync"]
    if numbered.null_count() < len(numbered) or frame.is_empty():
        return numbered.alias("event")
    frame = (
        frame.select("proc", "event_id", "start_ns", "kind").with_row_index("at").sort("start_ns", maintain_order=True)
    )
    records = frame.filter((pl.col("kind") == "record") & pl.col("event_id").is_not_null())
    records = records.select("proc", "event_id", "start_ns", event=pl.int_range(1, pl.len() + 1, dtype=pl.Int64))
    joined = frame.join_asof(records, on="start_ns", by=["proc", "event_id"], check_sortedness=False)
    return joined.sort("at")["event"]
