"""The environment that nsys writes into every report and export: which variables stay, which look like secrets.

It stands in three places: rows of META_DATA_CAPTURE (`HOME="/root"`), strings of all variables with zero bytes between
them, and, until 2024, a row of TARGET_INFO_SYSTEM_ENV with semicolons between them. nsys also leaves copies of it in
what is free in the file, which no table shows.
"""

from __future__ import annotations

import mmap
import re
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path

import polars as pl

from stepscope.capture.manifest import VARIABLES, looks_private

_MAGIC = b"SQLite format 3\0"
_ROWS = "META_DATA_CAPTURE", "name LIKE '%:ENVIRONMENT\\_VARIABLE' ESCAPE '\\'"
#: Strings of a whole environment: texts with a zero byte, which no name of a kernel or range has.
_STRINGS = "StringIds", "instr(CAST(value AS BLOB), x'00') > 0 AND instr(value, '=') > 0"

#: The same with semicolons, which values may have, too: a variable begins where a name and its sign follow one.
_DEVICE = "TARGET_INFO_SYSTEM_ENV", "name = 'DeviceEnvironment'"
_BETWEEN = {_ROWS: "(?!)", _STRINGS: "\0", _DEVICE: ";(?=[A-Za-z_][^=;]*=)"}
_JOINED = {_STRINGS: "\0", _DEVICE: ";"}
#: The same rows of an export as Parquet.
_IN_PARQUET = {
    _ROWS: pl.col("name").str.ends_with(":ENVIRONMENT_VARIABLE"),
    _STRINGS: pl.col("value").str.contains("\0", literal=True) & pl.col("value").str.contains("=", literal=True),
    _DEVICE: pl.col("name") == "DeviceEnvironment",
}
_REPORTS = frozenset({".nsys-rep", ".qdrep"})
#: In a report, a variable stands between zero bytes, or as a pair of protobuf strings.
_IN_REPORT = re.compile(
    rb"\0([A-Za-z_]\w*)=([^\0]+)(?=\0)|\n[\x01-\x7f]([A-Za-z_]\w*)\x12([\x80-\xff]?[\x01-\x7f])([\x20-\x7e]+)"
)


def keep_named(export: Path, named: Collection[str] = ()) -> int:
    """Take out of an export all variables but those of a fixed list and these; how many were there."""
    kept = {*VARIABLES, *named}
    gone: dict[str, str] = {}
    with export.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:  # whoever reads it says so
            return 0
    with closing(sqlite3.connect(export)) as database:
        database.execute("PRAGMA secure_delete = ON")  # what is taken out is overwritten, too
        database.text_factory = _text
        for place in _BETWEEN:
            for row, variables in _variables(database, place):
                left = [text for text in variables if _name(text) in kept]
                gone |= {_name(text): _value(text) for text in variables if text and _name(text) not in kept}
                if left == variables:
                    continue
                if place in _JOINED:
                    text = _JOINED[place].join(left)
                    database.execute(f"UPDATE {place[0]} SET value = ? WHERE rowid = ?", (text, row))
                else:
                    database.execute(f"DELETE FROM {place[0]} WHERE rowid = ?", (row,))
        database.commit()
        if _lies_about(export, [value for name, value in gone.items() if value and looks_private(name, value)]):
            database.execute("VACUUM")
    return len(gone)


def _lies_about(export: Path, values: list[str]) -> bool:
    """Whether one of these is still somewhere in the file."""
    if not values:
        return False
    with export.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return re.search(b"|".join(re.escape(value.encode()) for value in values), data) is not None


def secrets_in(path: Path) -> list[str]:
    """Names of variables in an export or report whose values look like tokens or keys; never the values."""
    if path.is_dir():
        contents = _of_folder(path)
    elif path.suffix in _REPORTS:
        contents = _of_report(path)
    else:
        contents = _of_database(path)
    return sorted({name for name, value in contents if value and looks_private(name, value)})


def _of_database(export: Path) -> Iterator[tuple[str, str]]:
    with export.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:  # another profiler's, which writes no environment
            return
    # Nobody writes to it any more. A database in WAL mode makes even a reader create files beside it, unless told so.
    with closing(sqlite3.connect(f"{export.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        database.text_factory = _text
        for place in _BETWEEN:
            for _, variables in _variables(database, place):
                yield from ((_name(text), _value(text)) for text in variables)


def _of_folder(folder: Path) -> Iterator[tuple[str, str]]:
    """Of an export as Parquet."""
    for place, rows in _IN_PARQUET.items():
        if (file := folder / f"{place[0]}.parquet").is_file():
            for value in pl.scan_parquet(file).filter(rows).select("value").collect()["value"]:
                yield from ((_name(text), _value(text)) for text in re.split(_BETWEEN[place], value))


def _of_report(report: Path) -> Iterator[tuple[str, str]]:
    if not report.stat().st_size:  # nothing can be mapped
        return
    with report.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for match in _IN_REPORT.finditer(data):
            name, value, paired, length, text = match.groups()
            if paired:  # seven bits of the length a byte
                name, value = paired, text[: sum((byte & 127) << 7 * at for at, byte in enumerate(length))]
            yield name.decode(), _text(value)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _variables(database: sqlite3.Connection, place: tuple[str, str]) -> Iterator[tuple[int, list[str]]]:
    """By row, what it holds of the environment: `NAME=value` each."""
    table, where = place
    if database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone() is None:
        return
    for row, text in database.execute(f"SELECT rowid, value FROM {table} WHERE {where}").fetchall():
        yield row, re.split(_BETWEEN[place], text)


def _name(text: str) -> str:
    return text.partition("=")[0]


def _value(text: str) -> str:
    return text.partition("=")[2].strip('"')
