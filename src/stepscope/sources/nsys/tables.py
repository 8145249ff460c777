"""An nsys export as raw tables, whatever the container: what the adapter needs of SQLite files and parquet directories.

Columns come in three plain types: signed 64-bit integers (unsigned values keep their bits), floats, and bytes (text is
bytes too: exports hold text that is not UTF-8). A file may hold anything anywhere, so this is what each is read as:

- where an integer is asked for: integers as they are, floats that are whole numbers, and null for everything else;
- where a float is asked for: numbers, and null for everything else;
- where bytes or text are asked for: those, numbers as they are written, and nothing (null, in small tables) for null.

How many values of a large table became null is noted (`Tables.unread`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import polars as pl

if TYPE_CHECKING:
    from stepscope.sources.nsys.paged import Soundness

Kind = Literal["int", "real", "bytes"]
#: What to do with each row range as soon as it is read: downcasting early keeps the peak of memory low.
Each = Callable[[pl.DataFrame], pl.DataFrame]

#: Rows that have one of these values in a column.
Only = tuple[str, Sequence[int]]

RAW_DTYPE: dict[Kind, type[pl.DataType]] = {"int": pl.Int64, "real": pl.Float64, "bytes": pl.Binary}


@dataclass(frozen=True)
class Field:
    """One exported column, by the first of its names that the export has; null (no bytes) where it has none."""

    names: tuple[str, ...]
    kind: Kind = "int"

    def find(self, columns: frozenset[str]) -> str | None:
        return next((name for name in self.names if name in columns), None)

    def missing(self) -> pl.Expr:
        """What an export without this column is read as."""
        return pl.lit(b"" if self.kind == "bytes" else None, dtype=RAW_DTYPE[self.kind])


def field(*names: str, kind: Kind = "int") -> Field:
    return Field(names, kind)


def text_field(*names: str) -> Field:
    return Field(names, "bytes")


class Tables(Protocol):
    """The tables of one export. Absent tables have no columns and no rows; nothing raises for them."""

    path: Path
    #: Values of large tables that are not of the type they should be, by table and column: read as null.
    unread: dict[tuple[str, str], int]

    @property
    def soundness(self) -> Soundness | None:
        """Damage of the file itself, of the formats that can tell."""
        ...

    def names(self) -> frozenset[str]:
        """All tables, empty ones too."""
        ...

    def columns(self, table: str) -> frozenset[str]: ...

    def has(self, table: str) -> bool:
        """Whether the table has any row."""
        ...

    def rows(self, table: str, *fields: Field) -> list[tuple[Any, ...]]:
        """A small table whole, text decoded; null for columns that it does not have."""
        ...

    def distinct(self, table: str, *columns: str) -> list[tuple[int | None, ...]]:
        """Distinct combinations of integer columns of a large table."""
        ...

    def largest(self, table: str, column: str) -> int | None: ...

    def containing(self, table: str, column: str, text: str, *others: str) -> list[tuple[Any, ...]]:
        """Rows of a large table whose text column contains `text` (ASCII): that column, then the others, integers."""
        ...

    def frame(
        self, table: str, fields: Mapping[str, Field], *, each: Each | None = None, only: Only | None = None
    ) -> pl.DataFrame:
        """`fields` of a large table in file order; `only` keeps rows whose column has one of the values."""
        ...


def no_rows(fields: Mapping[str, Field]) -> pl.DataFrame:
    """What an absent table is read as."""
    return pl.DataFrame(schema={alias: RAW_DTYPE[f.kind] for alias, f in fields.items()})


def plain(value: Any, kind: Kind) -> int | float | str | None:
    """One value of a small table, in the type that is asked for."""
    if value is None:
        return None
    if kind == "bytes":
        return decode(value) if isinstance(value, bytes) else str(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if kind == "real":
        return float(value)
    number = int(value) if value == value and abs(value) < 2**64 and value == int(value) else None
    return None if number is None else (number + 2**63) % 2**64 - 2**63


def decode(raw: bytes) -> str:
    """Text of an export, never an error: what is not UTF-8 is shown as U+FFFD."""
    return raw.decode("utf-8", errors="replace")


def literal(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"
