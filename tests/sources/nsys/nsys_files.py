"""Tiny exports, written table by table; and chunks with their texts filled in."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.model.columns import Part
from stepscope.model.schema import TABLES
from stepscope.model.source import Source

Rows = Sequence[Mapping[str, Any]]

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
RECORD = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
NVTX = "NVTX_EVENTS"
NONE = 4294967295


def global_id(pid: int, tid: int = 0, vm: int = 1) -> int:
    return (vm << 48) | (pid << 24) | tid


def kernel(start: int, end: int, pid: int = 7, **columns: Any) -> dict[str, Any]:
    base = {
        "start": start,
        "end": end,
        "deviceId": 0,
        "streamId": 7,
        "correlationId": start,
        "globalPid": global_id(pid),
    }
    return {**base, "demangledName": 1, "shortName": 1, **columns}


def call(start: int, end: int, pid: int = 7, name: int = 2, **columns: Any) -> dict[str, Any]:
    base = {"start": start, "end": end, "eventClass": 0, "globalTid": global_id(pid, pid), "correlationId": start}
    return {**base, "nameId": name, "returnValue": 0, **columns}


def range_(start: int, end: int | None, text: str | bytes | None, pid: int = 7, **columns: Any) -> dict[str, Any]:
    base = {"start": start, "end": end, "eventType": 59, "text": text, "textId": None, "domainId": 0}
    return {**base, "globalTid": global_id(pid, pid), **columns}


def strings(*texts: str | bytes) -> Rows:
    """StringIds, numbered from 1."""
    return [{"id": at, "value": text} for at, text in enumerate(texts, start=1)]


def write(path: Path, tables: Mapping[str, Rows], *, wal: bool = False) -> Path:
    """An SQLite file with these tables; the columns of a table are those of its first row. Bytes are stored as text."""
    with closing(sqlite3.connect(path)) as db:
        if wal:
            db.execute("PRAGMA journal_mode=WAL")
        for table, rows in tables.items():
            columns = list(rows[0])
            db.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            marks = ["CAST(? AS TEXT)" if isinstance(rows[0][c], bytes | str) else "?" for c in columns]
            for row in rows:
                db.execute(f"INSERT INTO {table} VALUES ({', '.join(marks)})", [row[c] for c in columns])
        db.commit()
    return path


def texts(source: Source, table: str, part: Part = "core") -> pl.DataFrame:
    """A table with texts in place of ids."""
    chunk = source.read(table, part)
    names = chunk.names.to_list()
    return chunk.frame.with_columns(
        pl.Series(c, [None if at is None else names[at] for at in chunk.frame[c]], dtype=pl.String)
        for c in TABLES[table].name_ids()
        if c in chunk.frame.columns
    )
