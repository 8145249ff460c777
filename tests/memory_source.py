"""A source that lives in memory: two ranks, one compute and one communication stream each, three steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from stepscope.model.columns import Part
from stepscope.model.schema import PROCESSES, empty
from stepscope.model.source import Chunk, Quality, SourceInfo, canonical, conform

#: Name ids of the tables below.
NAMES = ["gemm<float>", "ncclDevKernel_AllReduce", "cudaLaunchKernel", "step 0", "step 1", "step 2"]
STEP_NS = 10_000_000


class MemorySource:
    """Each step launches a kernel and, beside it, an all-reduce that outlasts it."""

    def __init__(
        self, path: Path = Path("memory.sqlite"), ranks: int = 2, tables: tuple[str, ...] | None = None
    ) -> None:
        self.path = path
        self.info = SourceInfo(str(path), "nsys-sqlite", "2025.3.1", "3.20.3", capture_ns=3 * STEP_NS)
        self.quality = Quality(["the recording began late"])
        self._ranks = ranks
        self._tables = frozenset(tables if tables is not None else ("ops", "calls", "ranges"))

    def processes(self) -> pl.DataFrame:
        rows = [
            {"proc": r, "pid": 400 + r, "host": "node0", "device": r, "gpu": "NVIDIA H200", "rank": r}
            | {"rank_from": "setup label", "setup": f"rank={r}; pp=0/1 dp={r}/2 cp=0/1 ep=0/1; mbs=1 seq=2048"}
            for r in range(self._ranks)
        ]
        return pl.DataFrame(rows, schema=PROCESSES)

    def tables(self) -> frozenset[str]:
        return self._tables

    def read(self, table: str, part: Part = "core") -> Chunk:
        if table not in self._tables:
            return Chunk(empty(table, part))
        rows = [row for r in range(self._ranks) for step in range(3) for row in _ROWS[table](r, step)]
        frame = canonical(pl.DataFrame(rows, infer_schema_length=None), table)
        return Chunk(conform(frame, table, part), pl.Series("name", NAMES))


def _ops(rank: int, step: int) -> list[dict[str, Any]]:
    start = step * STEP_NS + 2_000_000
    common = {"proc": rank, "kind": "kernel", "device": rank, "copy_kind": "none"}
    return [
        common | {"name": 0, "stream": 7, "start_ns": start, "end_ns": start + 4_000_000, "correlation": 10 * step + 1},
        common | {"name": 1, "stream": 9, "start_ns": start, "end_ns": start + 5_000_000, "correlation": 10 * step + 2},
    ]


def _calls(rank: int, step: int) -> list[dict[str, Any]]:
    start = step * STEP_NS + 1_000_000
    return [
        {"proc": rank, "tid": 1, "name": 2, "start_ns": start + i * 5_000, "end_ns": start + i * 5_000 + 3_000}
        | {"correlation": 10 * step + 1 + i}
        for i in range(2)
    ]


def _ranges(rank: int, step: int) -> list[dict[str, Any]]:
    start = step * STEP_NS
    return [
        {"proc": rank, "tid": 1, "name": 3 + step, "start_ns": start, "end_ns": start + STEP_NS, "kind": "pushpop"}
        | {"domain": None, "closed": True}
    ]


_ROWS = {"ops": _ops, "calls": _calls, "ranges": _ranges}
