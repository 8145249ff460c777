"""Rows of DuckDB as a frame of the types that answers have: whole numbers, floats, truth values, texts, lists of them.

A MAP is a list of its keys with their values. What has no such type (times, UUID, BLOB, UNION, …) is the text that
DuckDB writes for it; so is a column of numbers of which one would be rounded (HUGEINT beyond 64 bits, DECIMAL of more
digits than a float has).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType

_INTEGERS = frozenset({"tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger"})
#: A number of a profile is never beyond 64 bits; where one is, the column is text, which has all its digits.
_LARGE = frozenset({"ubigint", "hugeint", "uhugeint"})
_FLOATS = frozenset({"double", "float", "decimal"})
_TEXTS = frozenset({"varchar", "enum", "null"})


@dataclass(frozen=True)
class Column:
    """A column of the answer; no `type` where its values come as texts of another type of DuckDB's."""

    name: str
    kind: str
    type: pl.DataType | None

    @classmethod
    def of(cls, name: str, kind: DuckDBPyType) -> Column:
        return cls(name, kind.id, _type(kind))

    @property
    def selected(self) -> str:
        """As an expression over the query's rows."""
        quoted = '"' + self.name.replace('"', '""') + '"'
        return quoted if self.type is not None else f"CAST({quoted} AS VARCHAR) AS {quoted}"


def frame_of(columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
    """The rows as a frame."""
    values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    return pl.DataFrame([_series(column, of) for column, of in zip(columns, values, strict=True)])


def _type(kind: DuckDBPyType) -> pl.DataType | None:
    """The type of an answer for one of DuckDB's; None where there is none, also for what is within."""
    if kind.id in _INTEGERS or kind.id in _LARGE:
        return pl.Int64()
    if kind.id in _FLOATS:
        return pl.Float64()
    if kind.id == "boolean":
        return pl.Boolean()
    if kind.id in _TEXTS:
        return pl.String()
    if kind.id in ("list", "array"):
        inner = _type(_parts(kind)["child"])
        return None if inner is None else pl.List(inner)
    if kind.id in ("struct", "map"):
        parts = {name: _type(of) for name, of in _parts(kind).items()}
        if not parts or None in parts.values():
            return None
        struct = pl.Struct({name: of for name, of in parts.items() if of is not None})
        return struct if kind.id == "struct" else pl.List(struct)
    return None


def _parts(kind: DuckDBPyType) -> dict[str, Any]:
    """The types within a type, by name; an array has its length there, too."""
    return dict(kind.children)


def _series(column: Column, values: Sequence[Any]) -> pl.Series:
    kind = pl.String() if column.type is None else column.type
    if not kind.is_nested():
        return _plain(column, kind, values)
    try:
        return pl.Series(column.name, [_value(value, kind) for value in values], dtype=kind)
    except (OverflowError, TypeError, pl.exceptions.PolarsError):  # a number in it that would be rounded
        return _texts(column, values)


def _plain(column: Column, kind: pl.DataType, values: Sequence[Any]) -> pl.Series:
    try:
        if kind == pl.Float64():
            values = [None if v is None else _float(v) for v in values]
        return pl.Series(column.name, values, dtype=kind)
    except (OverflowError, TypeError, pl.exceptions.PolarsError):
        if column.kind not in (*_LARGE, "decimal"):
            raise
        return _texts(column, values)


def _texts(column: Column, values: Sequence[Any]) -> pl.Series:
    return pl.Series(column.name, [None if v is None else _text(v) for v in values], dtype=pl.String)


def _text(value: Any) -> str:
    """As DuckDB writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_text(of)}" for key, of in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_text, value)) + "]"
    return "NULL" if value is None else str(value)


def _float(value: Any) -> float:
    """The number with all its digits; `OverflowError` where a float has fewer."""
    number = float(value)
    if isinstance(value, Decimal) and Decimal(repr(number)) != value:
        raise OverflowError
    return number


def _value(value: Any, kind: pl.DataType) -> Any:
    """A value within a list or a record."""
    if value is None:
        return None
    if isinstance(kind, pl.List):
        inner = _of(kind.inner)
        items = _entries(value, inner) if isinstance(value, dict) else value
        return [_value(item, inner) for item in items]
    if isinstance(kind, pl.Struct):
        return {field.name: _value(value[field.name], _of(field.dtype)) for field in kind.fields}
    return _float(value) if kind == pl.Float64() else value


def _entries(value: dict[Any, Any], entry: pl.DataType) -> list[dict[str, Any]]:
    """Those of a MAP. Keys that Python cannot look up by come as a list beside that of the values."""
    keys = entry.fields[0].dtype if isinstance(entry, pl.Struct) else entry
    pairs = zip(value["key"], value["value"], strict=True) if keys.is_nested() else value.items()
    return [{"key": k, "value": v} for k, v in pairs]


def _of(kind: Any) -> pl.DataType:
    made: pl.DataType = kind() if isinstance(kind, type) else kind
    return made
