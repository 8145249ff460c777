"""The environment that nsys writes into every export: which variables stay, and which look like secrets.

It stands in two places: rows of META_DATA_CAPTURE (`HOME="/root"`), and strings of all variables with zero bytes
between them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path

from stepscope.capture.manifest import VARIABLES, looks_private

_MAGIC = b"SQLite format 3\0"
_ROWS = "META_DATA_CAPTURE", "name LIKE '%:ENVIRONMENT\\_VARIABLE' ESCAPE '\\'"
#: Strings of a whole environment: texts with a zero byte, which no name of a kernel or range has.
_STRINGS = "StringIds", "instr(CAST(value AS BLOB), x'00') > 0 AND instr(value, '=') > 0"


def keep_named(export: Path, named: Collection[str] = ()) -> int:
    """Take out of an export all variables but those of a fixed list and these; how many were there."""
    kept = {*VARIABLES, *named}
    gone: set[str] = set()
    with export.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:  # whoever reads it says so
            return 0
    with closing(sqlite3.connect(export)) as database:
        database.execute("PRAGMA secure_delete = ON")  # what is taken out is overwritten, too
        database.text_factory = _text
        for row, text in _values(database, *_ROWS):
            if _name(text) not in kept:
                gone.add(_name(text))
                database.execute(f"DELETE FROM {_ROWS[0]} WHERE rowid = ?", (row,))
        for row, text in _values(database, *_STRINGS):
            parts = text.split("\0")
            gone |= {_name(part) for part in parts if part and _name(part) not in kept}
            left = "\0".join(part for part in parts if _name(part) in kept)
            database.execute(f"UPDATE {_STRINGS[0]} SET value = ? WHERE rowid = ?", (left, row))
        database.commit()
    return len(gone)


def secrets_in(export: Path) -> list[str]:
    """Names of variables in an export whose values look like tokens or keys; never the values."""
    found: set[str] = set()
    # Nobody writes to it any more. A database in WAL mode makes even a reader create files beside it, unless told so.
    with closing(sqlite3.connect(f"{export.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        database.text_factory = _text
        for place in (_ROWS, _STRINGS):
            for _, text in _values(database, *place):
                for part in text.split("\0"):
                    name, _, value = part.partition("=")
                    if value.strip('"') and looks_private(name, value.strip('"')):
                        found.add(name)
    return sorted(found)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _values(database: sqlite3.Connection, table: str, where: str) -> Iterator[tuple[int, str]]:
    there = database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone()
    if there is not None:
        yield from database.execute(f"SELECT rowid, value FROM {table} WHERE {where}").fetchall()


def _name(text: str) -> str:
    return text.partition("=")[0]
