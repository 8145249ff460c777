"""A folder of Parquet files of ours: the tables as they are."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.errors import BadInput
from stepscope.model.exported import FOLDER_HEADER, Header, plain_type
from stepscope.model.schema import TABLES
from stepscope.sources.exported.source import ExportedSource, Tables


def open_export_folder(path: Path) -> ExportedSource:
    try:
        header = Header.parse((path / FOLDER_HEADER).read_bytes())
    except (OSError, ValueError):
        raise BadInput(f"{path}: {FOLDER_HEADER} is damaged", "export it again") from None
    return ExportedSource(path, header, lambda: _tables(path, header))


def _tables(path: Path, header: Header) -> Tables:
    place = {row["rank"]: i for i, row in enumerate(header.processes)}
    tables = {}
    for name in header.tables:
        if name not in TABLES:
            continue
        types = {column.name: plain_type(column) for column in TABLES[name] if not column.derived}
        try:
            frame = pl.read_parquet(path / f"{name}.parquet")
            frame = frame.select(pl.col(c).cast(types[c]) for c in frame.columns if c in types)
        except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
            raise BadInput(f"{path}: {name}.parquet is missing or damaged", "export it again") from None
        if missing := [key for key in TABLES[name].keys if key not in frame.columns]:
            raise BadInput(f"{path}: {name}.parquet has no column {missing[0]}", "export it again")
        if "rank" in frame.columns:
            proc = pl.col("rank").replace_strict(place, default=None, return_dtype=pl.Int32)
        else:
            proc = pl.lit(0, pl.Int32)
        tables[name] = frame.with_columns(proc.alias("proc")).drop("rank", "source", strict=False).drop_nulls("proc")
    return tables
