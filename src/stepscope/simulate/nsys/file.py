"""An SQLite file under construction: tables made when first filled, constants kept out of the rows, texts interned."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepscope.simulate.nsys import schema as nsys_schema

#: Rows converted to Python objects at a time: enough to drown the cost per call, little enough to stay in cache.
_CHUNK = 1 << 14

#: One value for every row (a number or text), or one per row. None leaves the column NULL.
Column = npt.NDArray[np.generic] | Sequence[object] | int | str | None


class NsysFile:
    """Inserts columns into the tables of `nsys_schema`; an export leaves out tables that would be empty."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._strings: dict[str, int] = {}
        self._made: set[str] = set()

    def string(self, text: str) -> int:
        """The id of a text in StringIds."""
        return self._strings.setdefault(text, len(self._strings))

    def make(self, table: str) -> None:
        """Create a table now, whether or not rows follow."""
        if table not in self._made:
            self._made.add(table)
            self._db.execute(nsys_schema.create(table))

    def insert(self, table: str, /, **columns: Column) -> None:
        """Append rows. Constants become literals of the statement, so that they cost nothing per row."""
        given = {name: value for name, value in columns.items() if value is not None}
        constants = {name: v for name, v in given.items() if isinstance(v, (int, str))}
        varying = {name: v for name, v in given.items() if not isinstance(v, (int, str))}
        length = len(next(iter(varying.values()))) if varying else 1
        if not length:
            return
        self.make(table)
        marks = ", ".join(_literal(constants[name]) if name in constants else "?" for name in given)
        statement = f"INSERT INTO {table} ({', '.join(given)}) VALUES ({marks})"
        if not varying:
            self._db.execute(statement)
        for low in range(0, length if varying else 0, _CHUNK):
            parts = [_listed(v[low : low + _CHUNK]) for v in varying.values()]
            self._db.executemany(statement, zip(*parts, strict=True))

    def insert_rows(self, table: str, rows: Sequence[Sequence[object]]) -> None:
        """Append complete rows to a small table."""
        if rows:
            self.make(table)
            self._db.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(rows[0]))})", rows)

    def finish(self) -> None:
        """Write the texts that the other tables refer to."""
        self.insert_rows("StringIds", [(i, text) for text, i in self._strings.items()])


def _listed(values: npt.NDArray[np.generic] | Sequence[object]) -> Sequence[object]:
    if isinstance(values, np.ndarray):
        listed: list[object] = values.tolist()
        return listed
    return values


def _literal(value: int | str) -> str:
    return str(int(value)) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


@contextmanager
def exporting(path: Path) -> Iterator[NsysFile]:
    """A new file, complete when the block ends."""
    path.unlink(missing_ok=True)
    with _as_of_files():
        db = sqlite3.connect(path, isolation_level=None)
        try:
            # Whoever needs it whole or not at all writes it elsewhere first: a journal, or flushing, protects nothing.
            for pragma in ("page_size=16384", "journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE"):
                db.execute(f"PRAGMA {pragma}")
            db.execute("BEGIN")
            file = NsysFile(db)
            yield file
            file.finish()
            db.execute("COMMIT")
        finally:
            db.close()


@contextmanager
def _as_of_files() -> Iterator[None]:
    """What SQLite cannot write, as any other file that cannot be written."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OSError(errno.ENOSPC if "full" in str(error) else errno.EIO, str(error)) from None
