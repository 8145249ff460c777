"""Is an SQLite export whole? SQLite reads on over damaged pages as if nothing were.

Its own check of all pages takes longer than reading what a question needs. So it is asked of small tables only, before
anything is read; of large ones the row ids tell while they are read (`paged.RowOrder`): nsys numbers rows without gaps.
Where they do not say, SQLite is asked about the whole file after all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from stepscope.sources.nsys.paged import RowOrder
from stepscope.sources.nsys.tables import literal

#: Bytes of a file that is checked whole before it is read: some 20 ms.
_SMALL_FILE = 8 << 20
#: Bytes of a file that is checked whole where row ids do not say: that takes about half a second.
_MOST_CHECKED = 256 << 20
#: Older versions check the whole file whichever table they are asked about.
_BY_TABLE = (3, 33)


class Soundness:
    """What is known of the damage of one file."""

    def __init__(self, path: Path, uri: str) -> None:
        self._path, self._uri = path, uri
        self._checked = False
        #: What is wrong, as SQLite says it.
        self.damage: str | None = None
        #: Why the file was not checked, though its row ids do not say.
        self.unchecked: str | None = None

    def check_small(self, tables: Iterable[str], is_small: Callable[[str], bool]) -> None:
        """Check the file if it is small, else its small tables."""
        if self._path.stat().st_size <= _SMALL_FILE or sqlite3.sqlite_version_info < _BY_TABLE:
            self._check_whole()
            return
        for table in sorted(tables):
            if self.damage is None and is_small(table):
                self.damage = self._said(literal(table))

    def check(self, order: RowOrder) -> None:
        """Judge a table by the row ids that were met."""
        verdict = order.verdict()
        if verdict != "whole":
            self._check_whole()
        if verdict == "disorder" and self.damage is None:
            self.damage = "rows are out of order"

    def _check_whole(self) -> None:
        if self._checked:
            return
        self._checked = True
        if self._path.stat().st_size > _MOST_CHECKED:
            self.unchecked = f"lacks rows and is larger than {_MOST_CHECKED >> 20} MB: it was not checked for damage"
        elif self.damage is None:
            self.damage = self._said("1")

    def _said(self, about: str) -> str | None:
        """What SQLite finds wrong first; None where all is well."""
        try:
            with closing(sqlite3.connect(self._uri, uri=True)) as database:
                answer = str(database.execute(f"PRAGMA quick_check({about})").fetchone()[0])
        except (sqlite3.Error, UnicodeDecodeError) as error:
            answer = str(error)
        return None if answer == "ok" else answer.splitlines()[-1]
