"""nsys: SQLite exports, parquet directories, and reports."""

from __future__ import annotations

from pathlib import Path

from stepscope.sources.nsys.source import NsysSource
from stepscope.sources.nsys.sqlite import SqliteTables, is_sqlite

__all__ = ["NsysSource", "is_sqlite", "open_sqlite"]


def open_sqlite(path: str | Path) -> NsysSource:
    """An SQLite export of any schema version, opened read-only."""
    path = Path(path)
    return NsysSource(SqliteTables(path), path, "nsys-sqlite")
