"""Large tables of an SQLite export from its pages (`pages`), and whether the export is whole.

SQLite reads on over damaged pages as if nothing were, and its own check of all pages takes longer than reading what a
question needs. So it is asked of small tables only, before anything is read; of large ones the row ids tell while they
are read (`RowOrder`): nsys numbers rows without gaps.
Where they do not say, SQLite is asked about the whole file after all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import polars as pl

from stepscope import progress
from stepscope.intervals.arrays import I64
from stepscope.model.spill import joined
from stepscope.sources.nsys.pages import NotPlain, Pages, Rows
from stepscope.sources.nsys.tables import literal

#: Bytes of pages that one thread reads at a time: they are held raw (8 bytes a value) while they are converted.
_RANGE_BYTES = 8 << 20

Query = Callable[[str], list[tuple[Any, ...]]]
#: `whole`: row ids ascend without a gap. `gaps`: rows were deleted, or lost. `disorder`: the tree is damaged.
Verdict = Literal["whole", "gaps", "disorder"]


class RowOrder:
    """Row ids of a table as its ranges are read, by any number of threads."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, int, bool]] = []

    def saw(self, rowid: I64) -> None:
        if len(rowid):
            ascending = bool((rowid[1:] > rowid[:-1]).all())
            self._ranges.append((int(rowid[0]), int(rowid[-1]), len(rowid), ascending))

    def verdict(self) -> Verdict:
        ranges = sorted(self._ranges)
        apart = all(before[1] < after[0] for before, after in pairwise(ranges))
        if not apart or not all(ascending for *_, ascending in ranges):
            return "disorder"
        rows = sum(count for _, _, count, _ in ranges)
        return "whole" if not ranges or ranges[-1][1] - ranges[0][0] + 1 == rows else "gaps"


class Paged:
    """The tables of one file, by their pages."""

    def __init__(self, path: Path, query: Query, workers: int) -> None:
        self._path, self._query, self._workers = path, query, workers
        self._pages: Pages | None = None
        self._places: dict[str, tuple[int, dict[str, int]]] = {}

    def frame(
        self,
        table: str,
        columns: Mapping[str, str],
        each: Callable[[pl.DataFrame], pl.DataFrame],
        order: RowOrder,
    ) -> pl.DataFrame:
        """Integer columns of a table by their aliases, `each` range of rows converted; `NotPlain` where SQLite must."""
        root, places = self._layout(table)
        names = [name for name in columns.values() if name != "rowid"]
        if any(name not in places for name in names):
            raise NotPlain("a column that is not in the record")
        if self._pages is None:
            self._pages = Pages(self._path)
        pages = self._pages
        wanted = [places[name] for name in names]

        def read(leaves: I64) -> pl.DataFrame:
            rows = pages.read(leaves, wanted)
            order.saw(rows.rowid)
            return each(_frame(columns, names, rows))

        leaves = pages.leaves(root)
        size = max(1, min(_RANGE_BYTES // pages.size, -(-len(leaves) // self._workers)))
        ranges = [leaves[first : first + size] for first in range(0, len(leaves), size)]
        if len(ranges) == 1:
            frame = read(ranges[0])
        else:
            with ThreadPoolExecutor(self._workers) as pool:
                frame = joined(progress.mapped(pool, read, ranges))
        if order.verdict() == "disorder":
            raise NotPlain("rows out of order")
        return frame

    def _layout(self, table: str) -> tuple[int, dict[str, int]]:
        """The first page of a table, and where each plain column stands in its records."""
        if table not in self._places:
            text = literal(table)
            roots = self._query(f"SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = {text}")
            info = self._query(f"SELECT name, hidden, pk FROM pragma_table_xinfo({text}) ORDER BY cid")
            if len(roots) != 1 or not isinstance(roots[0][0], int) or any(hidden for _, hidden, _ in info):
                raise NotPlain("columns that are not in the record")
            # A primary key may be the row id under another name: its place in the record is empty.
            places = {str(name): place for place, (name, _, key) in enumerate(info) if not key}
            self._places[table] = roots[0][0], places
        return self._places[table]


def _frame(columns: Mapping[str, str], names: list[str], rows: Rows) -> pl.DataFrame:
    values = dict(zip(names, rows.columns, strict=True))
    series = []
    for alias, name in columns.items():
        numbers, null = (rows.rowid, None) if name == "rowid" else values[name]
        column = pl.Series(alias, numbers)
        series.append(column if null is None else column.set(pl.Series(null), None))
    return pl.DataFrame(series)


__all__ = ["NotPlain", "Paged", "RowOrder", "Verdict"]


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
