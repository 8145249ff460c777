"""Tables from pages equal what SQLite says, value by value; what is not plain is left to SQLite."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope.sources.nsys.paged import RowOrder
from stepscope.sources.nsys.pages import NotPlain, Pages
from stepscope.sources.nsys.sqlite import SqliteTables
from stepscope.sources.nsys.tables import field

#: Around every width that SQLite stores.
EDGES = [sign * (1 << bits) + by for bits in (0, 7, 15, 23, 31, 47, 62) for sign in (1, -1) for by in (-1, 0, 1)]
INTEGERS = st.one_of(st.none(), st.sampled_from([*EDGES, (1 << 63) - 1, -(1 << 63)]), st.integers(-(2**63), 2**63 - 1))


def write(file: Path, rows: Sequence[tuple[Any, ...]], page: int = 4096, rowids: Sequence[int] = ()) -> None:
    """A table `t` of three columns behind another one."""
    with closing(sqlite3.connect(file)) as db, db:
        db.execute(f"PRAGMA page_size = {page}")
        db.execute("CREATE TABLE other (x)")
        db.execute("CREATE TABLE t (a, b, c)")
        numbered = zip(rowids or range(1, len(rows) + 1), rows, strict=True)
        db.executemany("INSERT INTO t (rowid, a, b, c) VALUES (?, ?, ?, ?)", [(at, *row) for at, row in numbered])


def read(file: Path, wanted: Sequence[int]) -> list[tuple[int | None, ...]]:
    """Row ids and columns of `t`, by its pages."""
    with closing(sqlite3.connect(file)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 't'").fetchone()
    pages = Pages(file)
    rows = pages.read(pages.leaves(root), wanted)
    columns: list[list[int | None]] = [rows.rowid.tolist()]
    for values, null in rows.columns:
        empty = np.zeros(len(values), dtype=bool) if null is None else null
        columns.append([None if e else v for v, e in zip(values.tolist(), empty.tolist(), strict=True)])
    return list(zip(*columns, strict=True))


def said(file: Path, columns: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as db:
        return db.execute(f"SELECT rowid, {columns} FROM t ORDER BY rowid").fetchall()


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(INTEGERS, INTEGERS, INTEGERS), max_size=40),
    times=st.sampled_from([1, 30]),
    page=st.sampled_from([512, 4096, 65536]),
    gaps=st.lists(st.integers(1, 2**45), min_size=40, max_size=40),
    gapless=st.booleans(),
)
def test_pages_equal_sqlite(
    rows: list[tuple[int | None, ...]], times: int, page: int, gaps: list[int], gapless: bool
) -> None:
    rows = rows * times
    rowids = [] if gapless else np.cumsum(np.resize(gaps, len(rows))).tolist()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "t.sqlite"
        write(file, rows, page, rowids)
        assert read(file, [0, 1, 2]) == said(file, "a, b, c")
        assert read(file, [2, 0]) == said(file, "c, a")


def test_many_levels_and_deleted_rows(tmp_path: Path) -> None:
    file = tmp_path / "t.sqlite"
    write(file, [(n, -n, n * 10**12) for n in range(60_000)], page=512)
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("DELETE FROM t WHERE rowid BETWEEN 1000 AND 9000 OR rowid % 5 = 0")
    assert read(file, [0, 1, 2]) == said(file, "a, b, c")


@pytest.mark.parametrize(
    "odd",
    [("text", 1, 2), (1.5, 1, 2), (b"\0" * 3, 1, 2), (1, 2, "x" * 3000)],
    ids=["text", "real", "blob", "overflow"],
)
def test_what_is_not_plain_is_read_by_sqlite(tmp_path: Path, odd: tuple[Any, ...]) -> None:
    file = tmp_path / "t.sqlite"
    write(file, [(n, n, n) for n in range(500)] + [odd], page=1024)
    with pytest.raises(NotPlain):
        read(file, [0, 1])
    frame = SqliteTables(file).frame("t", {"a": field("a"), "b": field("b")})
    a = odd[0] if isinstance(odd[0], int) else None
    assert frame.rows() == [*((n, n) for n in range(500)), (a, odd[1])]


def test_rows_of_fewer_columns(tmp_path: Path) -> None:
    """A column that was added later is not in older rows: SQLite knows its default."""
    file = tmp_path / "t.sqlite"
    write(file, [(1, 2, 3)])
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("ALTER TABLE t ADD COLUMN d INTEGER DEFAULT 7")
    assert SqliteTables(file).frame("t", {"d": field("d")}).rows() == [(7,)]


def test_a_key_that_is_the_row_id(tmp_path: Path) -> None:
    file = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a)")
        db.executemany("INSERT INTO t VALUES (?, ?)", [(5, 50), (9, 90)])
    assert SqliteTables(file).frame("t", {"id": field("id"), "a": field("a")}).rows() == [(5, 50), (9, 90)]
    assert SqliteTables(file).frame("t", {"row": field("rowid"), "a": field("a")}).rows() == [(5, 50), (9, 90)]


def test_a_table_without_rows(tmp_path: Path) -> None:
    file = tmp_path / "t.sqlite"
    write(file, [])
    frame = SqliteTables(file).frame("t", {"a": field("a"), "absent": field("nowhere")})
    assert frame.shape == (0, 2)


@pytest.mark.parametrize(
    ("ranges", "verdict"),
    [
        ([[1, 2], [3, 4]], "whole"),
        ([[3, 4], [1, 2]], "whole"),  # threads end in any order
        ([], "whole"),
        ([[1, 2], [4, 5]], "gaps"),
        ([[1, 3]], "gaps"),
        ([[1, 2], [2, 3]], "disorder"),
        ([[2, 1]], "disorder"),
    ],
)
def test_order_of_rows(ranges: list[list[int]], verdict: str) -> None:
    order = RowOrder()
    for rowids in ranges:
        order.saw(np.array(rowids, dtype=np.int64))
    assert order.verdict() == verdict
