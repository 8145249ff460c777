"""What sections and answers share: a section's head, notes, places, sums; and how rows of a table become messages."""

from __future__ import annotations

from typing import Literal, TypedDict, TypeVar, cast

import polars as pl

Row = TypeVar("Row")


def rows_of(kind: type[Row], table: pl.DataFrame) -> list[Row]:
    """A table's rows, with all of its columns; those that are declared must be among them."""
    if missing := kind.__required_keys__ - set(table.columns):  # type: ignore[attr-defined]
        raise KeyError(f"{kind.__name__}: no column {', '.join(sorted(missing))}")
    return cast("list[Row]", table.to_dicts())


class Part(TypedDict):
    """What every section has: its title, the command that prints the same, and the window that it is about."""

    title: str
    command: str
    windows: list[str]


class NoteData(TypedDict):
    """What a reader must know beside the figures (model/note.py)."""

    code: str
    severity: Literal["info", "warning", "loss"]
    origin: Literal["recording", "import", "analysis"]
    text: str


class PartSums(TypedDict):
    """Where a stretch of time went."""

    window_ns: int
    compute_ns: int
    comm_exposed_ns: int
    copy_exposed_ns: int
    idle_ns: int
    comm_hidden_ns: int


class RankSums(PartSums):
    rank: int
