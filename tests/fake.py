"""Profiles from plain lists: what a test says is all there is.

make(ops=[op(10, 20, call=1)], calls=[call(5, 8, id=1)], ranges=[nvtx(0, 30, "step 0")])

`FakeSource` is the same for tests that need the source: where it lies, what it notes, how often it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.model.columns import Part
from stepscope.model.note import Note
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


def make(processes: Iterable[Row] = (), **tables: list[Row]) -> Profile:
    """A profile of the given tables. Rows are of process 0 unless they say `proc`."""
    return Profile([FakeSource(tables, processes=processes)])


@dataclass
class Log:
    """How often sources were opened, and which parts of which tables were read."""

    opened: int = 0
    read: list[str] = field(default_factory=list)


class FakeSource:
    """A source of rows. A table that is not given is not recorded.

    `processes` are rows too, and need only have what differs from the usual. `notes` are noted when their key is read:
    `opened`, `processes`, or a part of a table such as `ops.core`.
    """

    def __init__(
        self,
        tables: Mapping[str, list[Row]],
        *,
        path: Path = Path("fake.sqlite"),
        processes: Iterable[Row] = (),
        notes: Mapping[str, str] | None = None,
        log: Log | None = None,
        **info: Any,
    ) -> None:
        self.path = path
        self.info = SourceInfo(**{"file": str(path), "format": "nsys-sqlite", "tool": "0", "schema": "0", **info})
        self.quality = Quality()
        self._tables = {k: [{"proc": 0} | r for r in v] for k, v in tables.items()}
        self._given = {r.get("proc", 0): r for r in processes}
        self._notes, self._log = notes or {}, log or Log()
        self._log.opened += 1
        self._note("opened")

    def processes(self) -> pl.DataFrame:
        self._note("processes")
        procs = {0, *self._given} | {r["proc"] for rows in self._tables.values() for r in rows}
        usual = {"host": "node0", "device": 0, "gpu": "GPU", "rank_from": "setup label"}
        rows = [{"proc": p, "pid": 100 + p, "rank": p} | usual | self._given.get(p, {}) for p in sorted(procs)]
        return pl.DataFrame(rows, schema=PROCESSES)

    def check(self) -> None:
        pass

    def tables(self) -> frozenset[str]:
        return frozenset(self._tables)

    def read(self, table: str, part: Part = "core") -> Chunk:
        self._log.read.append(f"{table}.{part}")
        self._note(f"{table}.{part}")
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

    def _note(self, key: str) -> None:
        if key in self._notes:
            self.quality.note(Note("fake", self._notes[key]))


#: The length of a step of `three_steps`.
STEP_NS = 10_000_000


def three_steps(
    path: Path = Path("fake.sqlite"), ranks: int = 2, tables: Iterable[str] = ("ops", "calls", "ranges")
) -> FakeSource:
    """Ranks with three steps each, that launch a kernel and, beside it, an all-reduce that outlasts it."""
    rows: dict[str, list[Row]] = {table: [] for table in tables}
    ms = 1_000_000
    for rank in range(ranks):
        for step in range(3):
            at, first = step * STEP_NS, 10 * step + 1
            made = {
                "ops": [
                    op(at + 2 * ms, at + 6 * ms, "gemm<float>", 7, first, device=rank),
                    op(at + 2 * ms, at + 7 * ms, "ncclDevKernel_AllReduce", 9, first + 1, device=rank),
                ],
                "calls": [call(at + ms + 5_000 * i, at + ms + 5_000 * i + 3_000, first + i) for i in range(2)],
                "ranges": [nvtx(at, at + STEP_NS, f"step {step}")],
            }
            for table, kept in rows.items():
                kept += [{"proc": rank} | row for row in made[table]]
    processes = [
        {"proc": r, "pid": 400 + r, "device": r, "gpu": "NVIDIA H200"}
        | {"setup": f"rank={r}; pp=0/1 dp={r}/{ranks} cp=0/1 ep=0/1; mbs=1 seq=2048"}
        for r in range(ranks)
    ]
    about = {"tool": "2025.3.1", "schema": "3.20.3", "capture_ns": 3 * STEP_NS}
    noted = {"opened": "the recording began late"}
    return FakeSource(rows, path=path, processes=processes, notes=noted, **about)
