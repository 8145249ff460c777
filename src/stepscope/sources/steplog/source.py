"""A log of steps as a source: ranges `step N` on the host's timeline, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from stepscope.errors import BadInput
from stepscope.model.columns import Part
from stepscope.model.note import noted
from stepscope.model.ranks import rank_in_name
from stepscope.model.schema import empty
from stepscope.model.source import Chunk, Quality, SourceInfo, canonical, conform, process_table

#: Half a century: longer times are none.
_LONGEST_NS = 1 << 60


class _Step(NamedTuple):
    """A line of the log."""

    rank: int
    name: str
    ns: int
    began: int | None


class StepLog:
    """One log; small, so all of it is read at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.quality = Quality()
        self.info = SourceInfo(str(path), "step-log")
        try:
            lines = path.read_text("utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{path}: cannot be read ({error})", "give a log of JSON lines") from None
        steps, lost = _steps(lines, rank_in_name(path) or 0)
        if not steps:
            raise BadInput(f"{path}: no line is a step", 'log a line {"step": 12, "ns": 57123456} per step')
        if lost:
            self.quality.note(noted("file-cut-short/lines", number=lost))
        self._ranks = sorted({step.rank for step in steps})
        self._frame, self._names = _ranges(steps, self._ranks)

    def processes(self) -> pl.DataFrame:
        return process_table(
            [{"proc": i, "pid": rank, "rank": rank, "rank_from": "log"} for i, rank in enumerate(self._ranks)]
        )

    def check(self) -> None:
        """The log was read when it was opened."""

    def tables(self) -> frozenset[str]:
        return frozenset({"ranges"})

    def read(self, table: str, part: Part = "core") -> Chunk:
        return Chunk(conform(self._frame, table, part), self._names) if table == "ranges" else Chunk(empty(table, part))


def _steps(lines: list[str], rank: int) -> tuple[list[_Step], int]:
    """Lines that are steps, and how many cannot be read."""
    steps: list[_Step] = []
    lost = 0
    for line in filter(str.strip, lines):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            lost += 1
            continue
        if not isinstance(record, dict) or not _whole(record.get("ns")) or "step" not in record:
            continue
        own = record.get("rank", rank)
        began = record.get("began_ns")
        steps.append(
            _Step(
                rank=own if _whole(own) else rank,
                name=str(record["step"])[:100],
                ns=int(record["ns"]),
                began=int(began) if began is not None and _whole(began) else None,
            )
        )
    return steps, lost


def _whole(value: Any) -> bool:
    """Whether it is a time or a rank that can be."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LONGEST_NS


def _ranges(steps: list[_Step], ranks: list[int]) -> tuple[pl.DataFrame, pl.Series]:
    """Ranges of all ranks: where a begin is not told, a step follows the one before it at once."""
    names: dict[str, int] = {}
    rows: list[tuple[int, int, int, int]] = []
    ends: dict[int, int] = {}
    for step in steps:
        start = ends.get(step.rank, 0) if step.began is None else step.began
        ends[step.rank] = start + step.ns
        name = names.setdefault(f"step {step.name}", len(names))
        rows.append((ranks.index(step.rank), start, start + step.ns, name))
    frame = pl.DataFrame(rows, schema=["proc", "start_ns", "end_ns", "name"], orient="row").with_columns(
        pl.lit(0, pl.Int64).alias("tid"), pl.lit("pushpop").alias("kind"), pl.lit(value=True).alias("closed")
    )
    return canonical(frame, "ranges"), pl.Series("name", list(names), dtype=pl.String)
