"""Chrome JSON of ours: an event per line, so that it is read as a table."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import BadInput
from stepscope.model.exported import TITLES, Header, arguments, ends, plain_type
from stepscope.sources.exported import CHROME_START
from stepscope.sources.exported.source import ExportedSource, Tables
from stepscope.sources.kineto.bytestream import ByteStream

_EVENTS = b',"traceEvents":[\n'
_AGAIN = "export it again"


def open_chrome_export(path: Path) -> ExportedSource:
    with ByteStream(path) as stream:
        head = b""
        while _EVENTS not in head and (more := stream.read(1 << 16)):
            head += more
    try:
        header = Header.parse(head[len(CHROME_START) : head.index(_EVENTS)])
    except ValueError:
        raise BadInput(f"{path}: an export whose header is damaged", _AGAIN) from None
    return ExportedSource(path, header, lambda: _tables(path, header))


def _tables(path: Path, header: Header) -> Tables:
    with ByteStream(path) as stream:
        parts = []
        while part := stream.read(1 << 24):
            parts.append(part)
    text = b"".join(parts)
    body = text[text.index(_EVENTS) + len(_EVENTS) :].removesuffix(b"\n]}\n")
    if len(body) + len(b"\n]}\n") + text.index(_EVENTS) + len(_EVENTS) != len(text):
        raise BadInput(f"{path}: the export is cut off, or was changed", _AGAIN)
    try:
        # No line break lies within an event: JSON writes those in texts as \\n.
        events = pl.read_ndjson(io.BytesIO(body.replace(b",\n", b"\n")), schema=_schema())
    except pl.exceptions.PolarsError as error:
        raise BadInput(f"{path}: an export that was changed ({str(error).splitlines()[0]})", _AGAIN) from None
    return {table: _table(events.filter(pl.col("cat") == table), table, header) for table in TITLES}


def _table(events: pl.DataFrame, table: str, header: Header) -> pl.DataFrame:
    place = {row["rank"] + 1: i for i, row in enumerate(header.processes)}
    start = (pl.col("ts") * 1000).round().cast(pl.Int64)
    columns = [
        pl.col("pid").replace_strict(place, default=None, return_dtype=pl.Int32).alias("proc"),
        (start + header.origin_ns).alias("start_ns"),
        pl.col("name").alias(TITLES[table]),
    ]
    if ends(table):
        columns.append((start + (pl.col("dur") * 1000).round().cast(pl.Int64) + header.origin_ns).alias("end_ns"))
    args = pl.col("args").struct
    for column in arguments(table):
        of = pl.col("device") if table == "counters" and column.name == "device" else args.field(column.name)
        columns.append(of.alias(column.name))
    return events.select(columns).drop_nulls("proc")


def _schema() -> dict[str, Any]:
    types = {column.name: plain_type(column) for table in TITLES for column in arguments(table)}
    return {
        "ph": pl.String,
        "cat": pl.String,
        "name": pl.String,
        "pid": pl.Int64,
        "ts": pl.Float64,
        "dur": pl.Float64,
        "device": pl.Int64,
        "args": pl.Struct(types),
    }
