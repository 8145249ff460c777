"""nsys: SQLite exports, parquet directories, and reports."""

from __future__ import annotations

import weakref
from pathlib import Path

from stepscope.files import temporary
from stepscope.model.note import Note
from stepscope.sources.nsys.parquet import ParquetTables, is_parquet_dir
from stepscope.sources.nsys.report import export_report
from stepscope.sources.nsys.source import NsysSource
from stepscope.sources.nsys.sqlite import SqliteTables, is_sqlite

#: Bytes of an export whose pages are checked before it is read: that takes about half a second.
_MOST_CHECKED = 256 << 20

__all__ = ["NsysSource", "is_parquet_dir", "is_report", "is_sqlite", "open_parquet", "open_report", "open_sqlite"]


def is_report(path: Path) -> bool:
    """Whether the file is a report of nsys, by its name (`.qdrep` until 2021)."""
    return path.suffix in {".nsys-rep", ".qdrep"} and path.is_file()


def open_sqlite(path: str | Path) -> NsysSource:
    """An SQLite export of any schema version, opened read-only."""
    path = Path(path)
    tables = SqliteTables(path)
    source = NsysSource(tables, path, "nsys-sqlite")
    if path.stat().st_size > _MOST_CHECKED:
        text = f"{path.name} is larger than {_MOST_CHECKED >> 20} MB: its pages were not checked for damage"
        source.quality.note(Note("pages-not-checked", text, origin="import"))
    elif (damage := tables.damage()) is not None:
        text = f"{path.name} is damaged ({damage}): rows are lost or wrong; copy or export it again"
        source.quality.note(Note("file-damaged", text, severity="loss", origin="import"))
    log = path.with_name(path.name + "-wal")
    if log.is_file() and log.stat().st_size:
        source.quality.note(
            Note(
                "unmerged-log",
                f"{log.name} holds changes that were never merged into the file: not read",
                severity="loss",
                origin="import",
            )
        )
    return source


def open_parquet(path: str | Path) -> NsysSource:
    """A parquet directory."""
    path = Path(path)
    return NsysSource(ParquetTables(path), path, "nsys-parquet")


def open_report(path: str | Path, nsys: str | Path | None = None) -> NsysSource:
    """A report, exported by the user's own nsys (on the PATH, or given) to a directory that goes with the source."""
    path = Path(path)
    directory = temporary.temporary_folder()
    try:
        source = NsysSource(SqliteTables(export_report(path, directory, nsys)), path, "nsys-rep")
    except BaseException:
        temporary.drop(directory)
        raise
    weakref.finalize(source, temporary.drop, directory)
    return source
