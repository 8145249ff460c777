"""Operations on the GPU, CUDA calls, other calls of the host, and synchronization.

That is waits of the host and of streams, and the event records they wait for.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from stepscope.model.api_names import api_name
from stepscope.model.columns import OP_KIND, SYNC_KIND, Part
from stepscope.model.schema import TABLES
from stepscope.model.source import Chunk
from stepscope.sources.nsys.events import Export, beside_ops, chunk, read_events
from stepscope.sources.nsys.mapping import GRAPH, HOST, KERNEL, MEMCPY, MEMSET, RECORD, RUNTIME, SYNC, Event
from stepscope.sources.nsys.processes import Gpus
from stepscope.sources.nsys.stacks import python_chains
from stepscope.sources.nsys.strings import Names
from stepscope.sources.nsys.tables import field


def read_ops(export: Export, part: Part) -> Chunk:
    names = Names()
    wanted = TABLES["ops"].part(part)
    if part == "launch" and export.ops is not None:
        own = [c for c in wanted if c not in export.ops[0].columns]
        rows = (read_events(export, event, own) for event in (KERNEL, MEMCPY, MEMSET, GRAPH))
        launched = beside_ops(export, pl.concat([f.drop("proc") for f in rows], how="diagonal"), part)
        if launched is not None:
            return launched
    if "device_name" in wanted:
        wanted = {**wanted, "device": pl.Int32}
    frames = [
        _named(export, read_events(export, KERNEL, wanted), KERNEL, names).with_columns(_kind("kernel")),
        _copies(export, wanted, names),
        read_events(export, MEMSET, wanted).with_columns(_kind("memset"), _name(names, "[memset]")),
        _graphs(export, wanted, names),
    ]
    parts = [f.select([c for c in wanted if c in f.columns]) for f in frames if f.height]
    frame = pl.concat(parts, how="diagonal") if parts else frames[0]
    if "device_name" in wanted:
        frame = _with_device_name(export, frame, names)
    return chunk(export, frame, "ops", part, names)


def read_calls(export: Export, part: Part) -> Chunk:
    names = Names()
    wanted = TABLES["calls"].part(part)
    named = "thread_name" in wanted
    frame = read_events(export, RUNTIME, {*wanted, "thread", "tid"} if named else wanted)
    frame = _named(export, frame, RUNTIME, names)
    if named:
        frame = frame.join(_threads(export, names), on="thread", how="left", maintain_order="left")
    if "python_chain" in wanted and (stacks := python_chains(export)).height:
        # The runtime call and what it enters carry different starts: only the outer one has the stack.
        frame = frame.join(stacks, on=["proc", "tid", "start_ns"], how="left", maintain_order="left")
    calls = chunk(export, frame, "calls", part, names)
    if part == "core":
        export.calls = calls  # its columns are those of the model: held twice they take no more
    return calls


def read_host(export: Export, part: Part) -> Chunk:
    names = Names()
    wanted = TABLES["host"].part(part)
    frames = [_named(export, read_events(export, event, wanted), event, names) for event in HOST]
    return chunk(export, pl.concat(frames, how="diagonal"), "host", part, names)


def _copies(export: Export, wanted: Mapping[str, object], names: Names) -> pl.DataFrame:
    columns = {*wanted, "copy_kind"}
    frame = read_events(export, MEMCPY, columns).with_columns(_kind("memcpy"))
    if "name" in wanted:
        ids = {kind: names.intern(f"[memcpy {kind}]") for kind in frame["copy_kind"].unique().to_list()}
        frame = frame.with_columns(
            name=pl.col("copy_kind").replace_strict(ids, return_dtype=pl.UInt32) if ids else pl.lit(0, pl.UInt32)
        )
    return frame


def _graphs(export: Export, wanted: Mapping[str, object], names: Names) -> pl.DataFrame:
    frame = read_events(export, GRAPH, {*wanted, "graph"}).with_columns(_kind("graph"))
    if "name" in wanted:
        ids = {graph: names.intern(f"[graph {graph}]") for graph in frame["graph"].unique().sort().to_list()}
        frame = frame.with_columns(
            name=pl.col("graph").replace_strict(ids, return_dtype=pl.UInt32) if ids else pl.lit(0, pl.UInt32)
        )
    return frame


def _named(export: Export, frame: pl.DataFrame, event: Event, names: Names) -> pl.DataFrame:
    """Ids of the string table become ids of the chunk."""
    ids = [
        names.by_id(frame[name], export.strings, api_name if event is RUNTIME and name == "name" else None)
        for name in frame.columns
        if name in event.named
    ]
    return frame.with_columns(ids) if ids else frame


def _threads(export: Export, names: Names) -> pl.DataFrame:
    """Name and priority of every thread that has them, by `globalTid`."""
    fields = {"thread": field("globalTid"), "name": field("nameId"), "thread_priority": field("priority")}
    frame = export.tables.frame("ThreadNames", fields).unique("thread", keep="first", maintain_order=True)
    return frame.select("thread", names.by_id(frame["name"], export.strings).alias("thread_name"), "thread_priority")


def _with_device_name(export: Export, frame: pl.DataFrame, names: Names) -> pl.DataFrame:
    gpus = Gpus(export)
    rows = []
    for proc, device in frame.select("proc", "device").unique().drop_nulls().iter_rows():
        name = gpus.name(export.keys[proc] & 0xFFFFFF, device)
        rows.append((proc, device, None if name is None else names.intern(name)))
    schema = {"proc": pl.Int32, "device": pl.Int32, "device_name": pl.UInt32}
    devices = pl.DataFrame(sorted(rows), schema=schema, orient="row")
    return frame.join(devices, on=["proc", "device"], how="left", maintain_order="left")


def _kind(kind: str) -> pl.Expr:
    return pl.lit(kind, dtype=OP_KIND).alias("kind")


def _name(names: Names, text: str) -> pl.Expr:
    return pl.lit(names.intern(text), dtype=pl.UInt32).alias("name")


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
