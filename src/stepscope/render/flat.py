"""Rows for other programs: CSV and Parquet. Bare numbers, columns as in the rows, the window of each beside it."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import polars as pl

from stepscope.model.result import Result
from stepscope.render.inert import no_formulas, visible_rows


def to_csv(result: Result) -> bytes:
    return no_formulas(visible_rows(_flattened(result.with_window()))).write_csv().encode()


def to_parquet(result: Result) -> bytes:
    buffer = io.BytesIO()
    result.with_window().write_parquet(buffer)
    return buffer.getvalue()


def _flattened(rows: pl.DataFrame) -> pl.DataFrame:
    """Lists and structs as JSON text: flat formats have no nesting."""
    nested = [name for name, dtype in rows.schema.items() if dtype.is_nested()]
    texts = [
        pl.Series(name, [None if v is None else _text(v) for v in rows[name].to_list()], dtype=pl.String)
        for name in nested
    ]
    return rows.with_columns(texts)


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
