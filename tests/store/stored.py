"""A trace of one line per op, read through the cache, and what the cache then holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
from polars.testing import assert_frame_equal, assert_series_equal

from fake import FakeSource, Log, op
from stepscope.model.source import Chunk, Source
from stepscope.store import CachedSource, flush

Open = Callable[..., CachedSource]
NOTES = {
    "opened": "noted when opened",
    "processes": "noted with the processes",
    "ops.core": "noted with core",
    "ops.detail": "noted with detail",
}


def text_source(path: Path, log: Log | None = None) -> FakeSource:
    """A text file with one line `start end name` per op; every other table is missing."""
    rows = [op(int(start), int(end), name) for start, end, name in map(str.split, path.read_text().splitlines())]
    return FakeSource({"ops": rows}, path=path, format="fake", epoch_ns=7, notes=NOTES, log=log)


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
