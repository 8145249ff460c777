"""nsys: SQLite exports, parquet directories, and reports."""

from __future__ import annotations

import weakref
from pathlib import Path

from stepscope.files import temporary
from stepscope.model.note import noted
from stepscope.sources.nsys.source import NsysSource
from stepscope.sources.nsys.sqlite import SqliteTables, is_sqlite

__all__ = ["NsysSource", "is_report", "is_sqlite", "open_parquet", "open_report", "open_sqlite"]


def is_report(path: Path) -> bool:
    """Whether the file is a report of nsys, by its name (`.qdrep` until 2021)."""
    return path.suffix in {".nsys-rep", ".qdrep"} and path.is_file()


def open_sqlite(path: str | Path) -> NsysSource:
    """An SQLite export of any schema version, opened read-only."""
    path = Path(path)
    tables = SqliteTables(path)
    tables.check_small()
    source = NsysSource(tables, path, "nsys-sqlite")
    log = path.with_name(path.name + "-wal")
    if log.is_file() and log.stat().st_size:
        source.quality.note(noted("unmerged-log", name=log.name))
    return source


def open_parquet(path: str | Path) -> NsysSource:
    """A parquet directory."""
    from stepscope.sources.nsys.parquet import ParquetTables

    path = Path(path)
    return NsysSource(ParquetTables(path), path, "nsys-parquet")


def open_report(path: str | Path, nsys: str | Path | None = None) -> NsysSource:
    """A report, exported by the user's own nsys (on the PATH, or given) to a directory that goes with the source."""
    from stepscope.sources.nsys.report import export_report

    path = Path(path)
    directory = temporary.temporary_folder()
    try:
        source = NsysSource(SqliteTables(export_report(path, directory, nsys)), path, "nsys-rep")
    except BaseException:
        temporary.drop(directory)
        raise
    weakref.finalize(source, temporary.drop, directory)
    return source
