"""Rows of DuckDB as a frame of the types that answers have: whole numbers, floats, truth values and texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

_FLOATS = ("DOUBLE", "FLOAT", "DECIMAL")
_NESTED = ("STRUCT", "MAP", "UNION")


def frame_of(columns: Sequence[tuple[str, str]], rows: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
    """`columns` are names and DuckDB's types."""
    values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    return pl.DataFrame([_series(name, kind, of) for (name, kind), of in zip(columns, values, strict=True)])


def is_nested(kind: str) -> bool:
    """Whether values of this type of DuckDB hold others."""
    return kind.endswith("]") or kind.startswith(_NESTED)


def _series(name: str, kind: str, values: Sequence[Any]) -> pl.Series:
    if is_nested(kind):
        return pl.Series(name, list(values))
    if kind.endswith("INT") or kind == "INTEGER" or kind == "UINTEGER":
        try:
            return pl.Series(name, values, dtype=pl.Int64)
        except (OverflowError, TypeError, pl.exceptions.PolarsError):  # HUGEINT: no figure of a profile is that large
            return pl.Series(name, [None if v is None else float(v) for v in values], dtype=pl.Float64)
    if kind.startswith(_FLOATS):
        return pl.Series(name, [None if v is None else float(v) for v in values], dtype=pl.Float64)
    if kind == "BOOLEAN":
        return pl.Series(name, values, dtype=pl.Boolean)
    return pl.Series(name, [None if v is None else str(v) for v in values], dtype=pl.String)
