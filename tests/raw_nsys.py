"""Figures straight from the tables of an nsys SQLite export, with Polars and none of our code.

The worked answers of the skills must equal them. For traces of one host with the trainer's labels, without copies
between GPUs and without CUDA graphs.
"""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

_PID = 0x1000000
_OPS = """
SELECT k.start, k.end, k.globalPid / {pid} AS pid, k.streamId AS stream, k.correlationId AS correlation, {name} AS name
FROM {table} k {join}
"""
_LAUNCHES = (
    f"SELECT start AS launch, globalTid AS tid, globalTid / {_PID} AS pid, correlationId AS correlation FROM {{table}}"
)
_RANGES = f"""
SELECT n.start, n.end, n.globalTid AS tid, n.globalTid / {_PID} AS pid, coalesce(n.text, s.value) AS text
FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId
WHERE n.eventType = 59 AND n.end IS NOT NULL AND n.start >= 0
"""


class Raw:
    """The ops of all ranks with their launches, and the trainer's ranges."""

    def __init__(self, path: Path) -> None:
        with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as db:
            tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
            ops = [_read(db, _OPS.format(pid=_PID, name=n, table=t, join=j)) for t, n, j in _KINDS if t in tables]
            calls = _read(db, _LAUNCHES.format(table="CUPTI_ACTIVITY_KIND_RUNTIME"))
            self.ranges = _read(db, _RANGES)
        db.close()
        self.ranks = self._ranks()
        joined = pl.concat(ops).join(
            calls.sort("launch").unique(["pid", "correlation"], keep="first"), ["pid", "correlation"]
        )
        self.ops = joined.join(self.ranks, on="pid").with_columns(
            nccl=pl.col("name").str.starts_with("nccl"),
            kernel=pl.col("name") != "",
        )

    def _ranks(self) -> pl.DataFrame:
        labels = self.ranges.filter(pl.col("text").str.contains(r"^rank=\d+;"))
        return labels.select(
            "pid",
            rank=pl.col("text").str.extract(r"^rank=(\d+)").cast(pl.Int64),
            pp=pl.col("text").str.extract(r"pp=(\d+)/").cast(pl.Int64),
        ).unique("pid")

    def of(self, rank: int) -> pl.DataFrame:
        return self.ops.filter(pl.col("rank") == rank)

    def chunks(self, rank: int) -> pl.DataFrame:
        """The overlapped chunks of a rank, in order."""
        found = self.ranges.join(self.ranks, on="pid").filter(
            pl.col("rank") == rank, pl.col("text").str.contains(r"^forward chunk .* backward chunk ")
        )
        return found.sort("start")

    def exposures(self, rank: int) -> pl.DataFrame:
        """The communication launched in chunks, op by op: its length, and what no compute of the rank covers."""
        ops = self.of(rank)
        comm = ops.filter("nccl").sort("launch")
        compute = Covered(ops.filter(pl.col("kernel") & ~pl.col("nccl")))
        hidden = compute.until(comm["end"]) - compute.until(comm["start"])
        chunks = self.chunks(rank).select("tid", "start", chunk_end="end", chunk=pl.int_range(pl.len()), label="text")
        stages = self.ranges.filter(pl.col("text").str.contains(r"stage[1-5]_[fbw]")).sort("start")
        stages = stages.select("tid", "start", stage_end="end", text="text")
        return (
            comm.with_columns(comm_ns=pl.col("end") - pl.col("start"))
            .with_columns(exposed_ns=pl.col("comm_ns") - pl.Series(hidden))
            .rename({"start": "gpu_start", "end": "gpu_end"})
            .join_asof(chunks, left_on="launch", right_on="start", by="tid", check_sortedness=False)
            .filter(pl.col("launch") < pl.col("chunk_end"))
            .drop("start", strict=False)
            .join_asof(stages, left_on="launch", right_on="start", by="tid", check_sortedness=False)
            .filter(pl.col("launch") < pl.col("stage_end"))
            .with_columns(stage=pl.col("text").map_elements(_last_stage, return_dtype=pl.String))
        )

    def chunk_compute(self, rank: int) -> pl.DataFrame:
        """By chunk: its forward phase, and the time with a compute kernel of it."""
        kernels = self.of(rank).filter(pl.col("kernel") & ~pl.col("nccl"))
        table = []
        for start, end, text in self.chunks(rank).select("start", "end", "text").iter_rows():
            mine = Covered(kernels.filter(pl.col("launch").is_between(start, end, closed="left")))
            part = re.search(r"\(phase(\d)\)", text)
            assert part is not None
            table.append({"part": int(part[1]), "compute_ns": mine.total})
        return pl.DataFrame(table)

    def gaps(self, rank: int) -> pl.DataFrame:
        """Stretches between the rank's ops with none running; of each, how long the next op had been launched."""
        ops = self.of(rank).sort("start")
        ops = ops.with_columns(free=pl.col("end").cum_max().shift(1)).filter(pl.col("start") > pl.col("free"))
        queued = pl.col("start") - pl.max_horizontal("free", "launch")
        return ops.select(
            "free",
            "start",
            "launch",
            "tid",
            gap_ns=pl.col("start") - pl.col("free"),
            queue_ns=queued.clip(lower_bound=0),
        )


class Covered:
    """Where at least one of some ops runs."""

    def __init__(self, ops: pl.DataFrame) -> None:
        ops = ops.sort("start")
        before = ops["end"].cum_max().shift(1, fill_value=-1)
        new = (ops["start"] > before).to_numpy()
        self.starts = ops["start"].to_numpy()[new]
        tops = ops["end"].cum_max().to_numpy()
        last = np.append(np.flatnonzero(new)[1:] - 1, len(tops) - 1) if len(tops) else np.zeros(0, dtype=int)
        self.ends = tops[last]

    @property
    def total(self) -> int:
        return int((self.ends - self.starts).sum())

    def until(self, times: pl.Series) -> Any:
        """How much is covered before each time."""
        at = times.to_numpy()
        done = np.concatenate([[0], np.cumsum(self.ends - self.starts)])
        n = np.searchsorted(self.starts, at, side="right")
        over = np.where(n > 0, np.maximum(self.ends[np.maximum(n, 1) - 1] - at, 0), 0)
        return done[n] - over


_KINDS = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", "s.value", "JOIN StringIds s ON s.id = k.demangledName"),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", "''", ""),
    ("CUPTI_ACTIVITY_KIND_MEMSET", "''", ""),
)


def _last_stage(text: str) -> str:
    number, direction = re.findall(r"stage([1-5])_([fbw])", text)[-1]
    return f"stage{number}_{direction}"


def _read(db: sqlite3.Connection, query: str) -> pl.DataFrame:
    cursor = db.execute(query)
    return pl.DataFrame(
        cursor.fetchall(), schema=[c[0] for c in cursor.description], orient="row", infer_schema_length=None
    )
