"""Mutants of nsys exports: SQLite files, and directories of parquet files."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import polars as pl
from mutate_values import CELLS, shown, some

#: Tables that hold events are mutated more often than the many that only describe.
_EVENTS = ("CUPTI_ACTIVITY", "NVTX_EVENTS", "StringIds")
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


def mutate_sqlite(r: random.Random, base: Path, folder: Path) -> tuple[Path, str]:
    """A copy with one to three defects, and what they are."""
    path = folder / "mutant.sqlite"
    shutil.copy(base, path)
    with closing(sqlite3.connect(path)) as db:
        said = [_defect(r, db) for _ in range(r.choice((1, 1, 1, 2, 3)))]
        db.commit()
    return path, f"{base.name}: {'; '.join(said)}"


def _defect(r: random.Random, db: sqlite3.Connection) -> str:
    names = [n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    events = [n for n in names if n.startswith(_EVENTS)]
    table = r.choice(events if events and r.random() < 0.75 else names)
    columns = [c for (c,) in db.execute(f"SELECT name FROM pragma_table_info('{table}')")]
    telling = [c for c in columns if c in _TELLING]
    column = r.choice(telling if telling and r.random() < 0.5 else columns)
    how = r.random()
    with suppress(sqlite3.OperationalError):  # the last column cannot be dropped
        if how < 0.06:
            db.execute(f'DROP TABLE "{table}"')
            return f"{table} dropped"
        if how < 0.09:
            db.execute(f'ALTER TABLE "{table}" RENAME TO "{table}_2"')
            return f"{table} renamed"
        if how < 0.16:
            db.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
            return f"{table}.{column} dropped"
        if how < 0.2:
            db.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{column}_2"')
            return f"{table}.{column} renamed"
    rows = [i for (i,) in db.execute(f'SELECT rowid FROM "{table}" ORDER BY rowid')]
    places = [rows[at] for at in some(r, len(rows))]
    if how < 0.28:
        _each(db, f'INSERT INTO "{table}" SELECT * FROM "{table}" WHERE rowid = ?', [(at,) for at in places])
        return f"{table}: {len(places)} rows twice"
    if how < 0.34:
        _each(db, f'DELETE FROM "{table}" WHERE rowid = ?', [(at,) for at in places])
        return f"{table}: {len(places)} rows gone"
    if how < 0.42 and {"start", "end"} <= set(columns):
        _each(db, f'UPDATE "{table}" SET start = "end", "end" = start WHERE rowid = ?', [(at,) for at in places])
        return f"{table}: {len(places)} rows backwards"
    value = r.choice(CELLS)
    _each(db, f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', [(value, at) for at in places])
    return f"{table}.{column} = {shown(value)} in {len(places)} rows"


def _each(db: sqlite3.Connection, sql: str, values: list[tuple[object, ...]]) -> None:
    db.executemany(sql, values)


def mutate_parquet(r: random.Random, base: Path, folder: Path) -> tuple[Path, str]:
    """As `mutate_sqlite`; a parquet column has one type, so that a wrong value makes the whole column wrong."""
    path = folder / "mutant_pqtdir"
    shutil.copytree(base, path)
    said = [_file_defect(r, path) for _ in range(r.choice((1, 1, 2)))]
    return path, f"{base.name}: {'; '.join(said)}"


def _file_defect(r: random.Random, folder: Path) -> str:
    files = sorted(folder.glob("*.parquet"))
    events = [f for f in files if f.name.startswith(_EVENTS)]
    file = r.choice(events if events and r.random() < 0.75 else files)
    how = r.random()
    if how < 0.05:
        file.unlink()
        return f"{file.stem} gone"
    if how < 0.12:
        data = bytearray(file.read_bytes())
        for _ in range(r.choice((1, 8, 64))):
            data[r.randrange(len(data))] = r.randrange(256)
        file.write_bytes(data[: r.choice((len(data), len(data), len(data) // 2))])
        return f"{file.stem}: bytes damaged"
    frame = pl.read_parquet(file)
    column = r.choice(frame.columns)
    telling = [c for c in frame.columns if c in _TELLING]
    column = r.choice(telling) if telling and r.random() < 0.5 else column
    places = some(r, frame.height)
    if how < 0.2:
        frame, said = frame.drop(column), f"{column} dropped"
    elif how < 0.25:
        frame, said = frame.rename({column: f"{column}_2"}), f"{column} renamed"
    elif how < 0.33:
        frame, said = pl.concat([frame, frame[places]]), f"{len(places)} rows twice"
    elif how < 0.4:
        frame, said = frame[[i for i in range(frame.height) if i not in set(places)]], f"{len(places)} rows gone"
    elif how < 0.55:
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
    return f"{file.stem}: {said}"
