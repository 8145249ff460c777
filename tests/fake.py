"""Profiles from plain lists: what a test says is all there is.

make(ops=[op(10, 20, call=1)], calls=[call(5, 8, id=1)], ranges=[nvtx(0, 30, "step 0")])
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from stepscope.model.columns import Part
from stepscope.model.profile import Profile
from stepscope.model.schema import PROCESSES, TABLES, empty
from stepscope.model.source import Chunk, Quality, SourceInfo, canonical, conform

Row = dict[str, Any]


def op(start: int, end: int, name: str = "gemm", stream: int = 7, call: int | None = None, **more: Any) -> Row:
    """A kernel, or what `kind` says; `call` is the id of the call that launched it."""
    row = {"kind": "kernel", "device": 0, "copy_kind": "none", "name": name, "stream": stream, "correlation": call}
    return row | {"start_ns": start, "end_ns": end} | more


def comm(start: int, end: int, stream: int = 9, call: int | None = None, **more: Any) -> Row:
    return op(start, end, "ncclDevKernel_SendRecv", stream, call, **more)


def copy(start: int, end: int, stream: int = 7, call: int | None = None, **more: Any) -> Row:
    return op(start, end, "[memset]", stream, call, kind="memset", **more)


def call(start: int, end: int, id: int | None = None, name: str = "cudaLaunchKernel", tid: int = 1) -> Row:
    return {"start_ns": start, "end_ns": end, "correlation": id, "name": name, "tid": tid}


def nvtx(start: int, end: int, name: str, tid: int = 1, **more: Any) -> Row:
    row = {"start_ns": start, "end_ns": end, "name": name, "tid": tid, "kind": "pushpop", "domain": None}
    return row | {"closed": True} | more


def record(at: int, event: int, stream: int) -> Row:
    return {"start_ns": at, "end_ns": at + 1, "kind": "record", "event": event, "stream": stream}


def wait(at: int, event: int, stream: int) -> Row:
    return {"start_ns": at, "end_ns": at + 1, "kind": "stream_wait", "event": event, "stream": stream}


def make(**tables: list[Row]) -> Profile:
    """A profile of the given tables. Rows are of process 0 unless they say `proc`."""
    return Profile([FakeSource(tables)])


class FakeSource:
    """A source of rows. A table that is not given is not recorded."""

    def __init__(self, tables: dict[str, list[Row]]) -> None:
        self.path = Path("fake.sqlite")
        self.info = SourceInfo("fake.sqlite", "nsys-sqlite", "0", "0")
        self.quality = Quality()
        self._tables = {k: [{"proc": 0} | r for r in v] for k, v in tables.items()}
        self._procs = sorted({0} | {r["proc"] for v in self._tables.values() for r in v})

    def processes(self) -> pl.DataFrame:
        rows = [
            {
                "proc": p,
                "pid": 100 + p,
                "host": "node0",
                "device": 0,
                "gpu": "GPU",
                "rank": p,
                "rank_from": "setup label",
            }
            for p in self._procs
        ]
        return pl.DataFrame(rows, schema=PROCESSES)

    def tables(self) -> frozenset[str]:
        return frozenset(self._tables)

    def read(self, table: str, part: Part = "core") -> Chunk:
        rows = self._tables.get(table, [])
        if not rows:
            return Chunk(empty(table, part))
        names: dict[str, int] = {}
        spec = TABLES[table]
        coded = [
            {k: names.setdefault(v, len(names)) if k in spec.name_ids() and v is not None else v for k, v in r.items()}
            for r in rows
        ]
        columns = {c.name: c.dtype for c in spec if not c.derived and c.name != "rank"}
        frame = pl.DataFrame(coded, schema={"proc": pl.Int32, **columns}, infer_schema_length=None)
        return Chunk(conform(canonical(frame, table), table, part), pl.Series("name", list(names), dtype=pl.String))
