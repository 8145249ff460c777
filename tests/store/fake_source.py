"""A tiny source that counts how often it is opened and read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from polars.testing import assert_frame_equal, assert_series_equal

from stepscope.model.columns import Part
from stepscope.model.schema import PROCESSES, TABLES, empty
from stepscope.model.source import Chunk, Quality, Source, SourceInfo
from stepscope.store import CachedSource, flush

Open = Callable[..., CachedSource]


@dataclass
class Log:
    opened: int = 0
    read: list[str] = field(default_factory=list)


class FakeSource:
    """Reads a text file with one line `start end name` per op; every other table is missing."""

    def __init__(self, path: Path, log: Log) -> None:
        self.path = path
        self.info = SourceInfo(str(path), "fake", tool="1.0", epoch_ns=7)
        self.quality = Quality(["noted when opened"])
        self._log = log
        log.opened += 1
        self._rows = [line.split() for line in path.read_text().splitlines()]

    def processes(self) -> pl.DataFrame:
        self.quality.note("noted with the processes")
        return pl.DataFrame({"proc": [0], "pid": [42], "rank_from": ["label"], "rank": [3]}).pipe(_fill)

    def tables(self) -> frozenset[str]:
        return frozenset({"ops"})

    def read(self, table: str, part: Part = "core") -> Chunk:
        self._log.read.append(f"{table}.{part}")
        if table != "ops":
            return Chunk(empty(table, part))
        self.quality.note(f"noted with {part}")
        names = list(dict.fromkeys(r[2] for r in self._rows))
        frame = pl.DataFrame(
            {
                "proc": [0] * len(self._rows),
                "start_ns": [int(r[0]) for r in self._rows],
                "end_ns": [int(r[1]) for r in self._rows],
                "name": [names.index(r[2]) for r in self._rows],
                "kind": ["kernel"] * len(self._rows),
            }
        )
        wanted = TABLES[table].part(part)
        have = [c for c in wanted if c in frame.columns]
        frame = frame.select(have).with_columns(
            pl.lit(None, dtype=d).alias(c) for c, d in wanted.items() if c not in have
        )
        return Chunk(frame.select(list(wanted)).cast(dict(wanted)), pl.Series("name", names, dtype=pl.String))


def _fill(frame: pl.DataFrame) -> pl.DataFrame:
    missing = [pl.lit(None, dtype=d).alias(c) for c, d in PROCESSES.items() if c not in frame.columns]
    return frame.with_columns(missing).select(list(PROCESSES)).cast(dict(PROCESSES))


def everything(source: Source) -> dict[str, object]:
    answers = {
        "processes": source.processes(),
        "tables": source.tables(),
        "core": source.read("ops"),
        "detail": source.read("ops", "detail"),
        "missing": source.read("calls"),
        "info": source.info,
        "notes": list(source.quality.notes),
    }
    flush()
    return answers


def assert_same(a: dict[str, object], b: dict[str, object]) -> None:
    assert a.keys() == b.keys()
    for key, left in a.items():
        right = b[key]
        if isinstance(left, pl.DataFrame) and isinstance(right, pl.DataFrame):
            assert_frame_equal(left, right)
        elif isinstance(left, Chunk) and isinstance(right, Chunk):
            assert_frame_equal(left.frame, right.frame)
            assert_series_equal(left.names, right.names)
        else:
            assert left == right


def entries(cache_dir: Path) -> list[Path]:
    return sorted((cache_dir / "tables").iterdir())


def keys(cache_dir: Path) -> list[str]:
    return sorted({p.name[:32] for p in entries(cache_dir)})
