"""Mutants of nsys exports: SQLite files, and directories of parquet files."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import polars as pl
from effects import Defect, Effect, together
from mutate_values import CELLS, shown, some

#: Tables that hold events are mutated more often than the many that only describe.
_EVENTS = ("CUPTI_ACTIVITY", "NVTX_EVENTS", "StringIds")
#: Tables whose rows are each an event of its own: nobody writes one twice, or backwards.
_TIMED = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_MEMCPY")
#: Columns that decide most of the figures.
_TELLING = (
    "start",
    "end",
    "correlationId",
    "globalPid",
    "globalTid",
    "deviceId",
    "streamId",
    "nameId",
    "demangledName",
)
#: Nothing that a column of numbers holds; and in one of times, nor what is centuries away.
_NO_NUMBERS = (None, "", "text", b"", b"\x00\xff\xfe", 1e300, -1e300, float("inf"))
_NO_TIMES = (*_NO_NUMBERS, -(2**62), -(2**63), 2**62, 2**63 - 1)
_PAGE = 4096


def mutate_sqlite(r: random.Random, base: Path, folder: Path) -> tuple[Path, Defect]:
    """A copy with one to three defects, and what they are."""
    path = folder / base.name
    shutil.copy(base, path)
    how = r.random()
    if how < 0.15:
        return path, _pages(r, path)
    with closing(sqlite3.connect(path)) as db:
        db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        if how < 0.25:
            defects = [_irrelevant(r, db)]
        elif how < 0.3:
            defects = [_schema(r, db)]
        else:
            defects = [_defect(r, db) for _ in range(r.choice((1, 1, 1, 2, 3)))]
        db.commit()
    if how >= 0.25 and how < 0.3:
        return path, (defects[0][0], "free" if _sound(path) else "told")
    return path, together(defects)


def _pages(r: random.Random, path: Path) -> Defect:
    """Bytes of pages, whole pages, the end of the file. What SQLite's own check finds is to be told."""
    data = bytearray(path.read_bytes())
    pages = len(data) // _PAGE
    how = r.random()
    if how < 0.2:
        at = r.randrange(len(data))
        data, said = data[:at], f"cut at {at}"
    elif how < 0.4:
        page = r.randrange(1, pages) * _PAGE
        other = r.randrange(pages) * _PAGE
        data[page : page + _PAGE] = r.choice((bytes(_PAGE), b"\xff" * _PAGE, data[other : other + _PAGE]))
        said = f"page {page // _PAGE} is another"
    else:
        page = r.randrange(pages) * _PAGE
        near = r.choice((100, _PAGE))  # the header of a page, and the places of its cells, lie first
        for _ in range(r.choice((1, 1, 4, 40))):
            data[page + r.randrange(near)] = r.randrange(256)
        said = f"bytes of page {page // _PAGE}"
    path.write_bytes(data)
    return said, "free" if _sound(path) else "told"


def _sound(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(path)) as db:
            return db.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    except (sqlite3.Error, UnicodeDecodeError):
        return False


def _schema(r: random.Random, db: sqlite3.Connection) -> Defect:
    """What the schema's own table says of one table."""
    db.execute("PRAGMA writable_schema = ON")
    names = [n for (n,) in db.execute("SELECT name FROM sqlite_master ORDER BY name")]
    name = r.choice(names)
    column, value = r.choice(
        (
            ("rootpage", r.randrange(40)),
            ("type", "view"),
            ("name", r.choice(("x", "", "NVTX_EVENTS"))),
            ("sql", "x"),
            ("sql", f'CREATE TABLE "{name}" (a)'),
            ("sql", f'CREATE VIEW "{name}" AS SELECT * FROM "{name}"'),
        )
    )
    db.execute(f"UPDATE sqlite_master SET {column} = ? WHERE name = ?", [value, name])
    return f"schema: {column} of {name} = {value}", "free"


def _irrelevant(r: random.Random, db: sqlite3.Connection) -> Defect:
    """What no reader looks at."""
    names = _tables(db)
    how, table = r.randrange(6), r.choice(names)
    if how == 0:
        db.execute("CREATE TABLE OF_ANOTHER_TOOL (start, end, text)")
        db.executemany("INSERT INTO OF_ANOTHER_TOOL VALUES (?, ?, ?)", [(v, v, v) for v in CELLS])
        return "a table of another tool", "same"
    if how == 1:
        db.execute(f'ALTER TABLE "{table}" ADD COLUMN ofAnotherTool')
        db.execute(f'UPDATE "{table}" SET ofAnotherTool = ?', [r.choice(CELLS)])
        return f"{table} has another column", "same"
    if how == 2:
        events = [n for n in names if n.startswith(_EVENTS)]
        table = r.choice(events or names)
        db.execute(
            f'CREATE TABLE shuffled AS SELECT * FROM "{table}" ORDER BY rowid * {r.randrange(1, 10**6, 2)} % 1009'
        )
        db.execute(f'DROP TABLE "{table}"')
        db.execute(f'ALTER TABLE shuffled RENAME TO "{table}"')
        return f"{table} in another order", "same"
    if how == 3:
        db.execute("CREATE TABLE freed AS SELECT randomblob(5000) FROM sqlite_master")
        db.execute("DROP TABLE freed")
        return "freed pages", "same"
    if how == 4:
        column = r.choice(_columns(db, table))
        db.execute(f'CREATE INDEX of_another_tool ON "{table}" ("{column}")')
        return f"{table} has an index", "same"
    db.commit()
    db.execute(f"PRAGMA page_size = {r.choice((512, 1024, 8192, 65536))}")
    db.execute("VACUUM")
    return "other pages", "same"


def _tables(db: sqlite3.Connection) -> list[str]:
    return [n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]


def _columns(db: sqlite3.Connection, table: str) -> list[str]:
    return [c for (c,) in db.execute(f"SELECT name FROM pragma_table_info('{table}')")]


def _defect(r: random.Random, db: sqlite3.Connection) -> Defect:
    names = _tables(db)
    events = [n for n in names if n.startswith(_EVENTS)]
    table = r.choice(events if events and r.random() < 0.75 else names)
    columns = _columns(db, table)
    telling = [c for c in columns if c in _TELLING]
    column = r.choice(telling if telling and r.random() < 0.5 else columns)
    how = r.random()
    with suppress(sqlite3.OperationalError):  # the last column cannot be dropped
        if how < 0.06:
            db.execute(f'DROP TABLE "{table}"')
            return f"{table} dropped", "free"
        if how < 0.09:
            db.execute(f'ALTER TABLE "{table}" RENAME TO "{table}_2"')
            return f"{table} renamed", "free"
        if how < 0.16:
            db.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
            return f"{table}.{column} dropped", "free"
        if how < 0.2:
            db.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{column}_2"')
            return f"{table}.{column} renamed", "free"
    rows = [i for (i,) in db.execute(f'SELECT rowid FROM "{table}" ORDER BY rowid')]
    places = [rows[at] for at in some(r, len(rows))]
    timed: Effect = "told" if table in _TIMED else "free"
    if how < 0.28:
        _each(db, f'INSERT INTO "{table}" SELECT * FROM "{table}" WHERE rowid = ?', [(at,) for at in places])
        return f"{table}: {len(places)} rows twice", timed
    if how < 0.34:
        _each(db, f'DELETE FROM "{table}" WHERE rowid = ?', [(at,) for at in places])
        many = table == _TIMED[0] and len(places) * 4 > len(rows)
        return f"{table}: {len(places)} of {len(rows)} rows gone", "told" if many else "free"
    if how < 0.42 and {"start", "end"} <= set(columns):
        _each(db, f'UPDATE "{table}" SET start = "end", "end" = start WHERE rowid = ?', [(at,) for at in places])
        return f"{table}: {len(places)} rows backwards", timed
    value = r.choice(CELLS)
    _each(db, f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', [(value, at) for at in places])
    impossible = _NO_TIMES if column in ("start", "end") else _NO_NUMBERS if column in _TELLING else ()
    flawed = any(value is v or value == v for v in impossible)
    return f"{table}.{column} = {shown(value)} in {len(places)} rows", timed if flawed else "free"


def _each(db: sqlite3.Connection, sql: str, values: list[tuple[object, ...]]) -> None:
    db.executemany(sql, values)


def mutate_parquet(r: random.Random, base: Path, folder: Path) -> tuple[Path, Defect]:
    """As `mutate_sqlite`; a parquet column has one type, so that a wrong value makes the whole column wrong."""
    path = folder / base.name
    shutil.copytree(base, path)
    return path, together(_file_defect(r, path) for _ in range(r.choice((1, 1, 2))))


def _file_defect(r: random.Random, folder: Path) -> Defect:
    files = sorted(folder.glob("*.parquet"))
    if not files:
        return "nothing left", "free"
    events = [f for f in files if f.name.startswith(_EVENTS)]
    file = r.choice(events if events and r.random() < 0.75 else files)
    how = r.random()
    if how < 0.05:
        file.unlink()
        return f"{file.stem} gone", "free"
    if how < 0.12:
        data = bytearray(file.read_bytes())
        for _ in range(r.choice((1, 8, 64))):
            data[r.randrange(len(data))] = r.randrange(256)
        file.write_bytes(data[: r.choice((len(data), len(data), len(data) // 2))])
        return f"{file.stem}: bytes damaged", "free"
    if how < 0.15:
        (folder / "OF_ANOTHER_TOOL.parquet").write_bytes(file.read_bytes())
        return "a table of another tool", "same"
    try:
        frame = pl.read_parquet(file)
    except (pl.exceptions.PolarsError, OSError):  # damaged a moment ago
        return f"{file.stem}: nothing more", "free"
    return _frame_defect(r, file, frame, how)


def _frame_defect(r: random.Random, file: Path, frame: pl.DataFrame, how: float) -> Defect:
    effect: Effect = "free"
    telling = [c for c in frame.columns if c in _TELLING]
    column = r.choice(telling if telling and r.random() < 0.5 else frame.columns)
    places = some(r, frame.height)
    if how < 0.18:
        frame, said, effect = frame.with_columns(pl.lit(1).alias("ofAnotherTool")), "another column", "same"
    elif how < 0.22:
        frame, said, effect = frame.sample(fraction=1, shuffle=True, seed=r.randrange(2**31)), "another order", "same"
    elif how < 0.27:
        frame, said = frame.drop(column), f"{column} dropped"
    elif how < 0.3:
        frame, said = frame.rename({column: f"{column}_2"}), f"{column} renamed"
    elif how < 0.36:
        frame, said = pl.concat([frame, frame[places]]), f"{len(places)} rows twice"
        effect = "told" if file.stem in _TIMED else "free"
    elif how < 0.42:
        frame, said = frame[[i for i in range(frame.height) if i not in set(places)]], f"{len(places)} rows gone"
    elif how < 0.57:
        dtype = r.choice((pl.String, pl.Float64, pl.Int8, pl.UInt64, pl.Boolean, pl.Date, pl.List(pl.Int64), pl.Null))
        series = frame[column]
        other = pl.Series(column, [None] * len(series), dtype=dtype)
        with suppress(pl.exceptions.PolarsError):
            other = series.cast(dtype, strict=False)
        frame, said = frame.with_columns(other), f"{column} as {dtype}"
    else:
        value, values = r.choice(CELLS), frame[column].to_list()
        for at in places:
            values[at] = value
        try:
            other = pl.Series(column, values, dtype=frame[column].dtype, strict=False)
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            other = pl.Series(column, [None if v is None else str(v) for v in values])
        frame, said = frame.with_columns(other), f"{column} = {shown(value)} in {len(places)} rows"
    frame.write_parquet(file)
    return f"{file.stem}: {said}", effect
