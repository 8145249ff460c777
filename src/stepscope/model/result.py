"""What every analysis returns: rows with their scope, so that a figure never travels without its window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from stepscope.model.note import Note
from stepscope.model.source import SourceInfo


@dataclass(frozen=True)
class Col:
    """A column of a result. The unit is the suffix: `_ns`, `_bytes`, `_pct`, `_gbps`, `_us`, none for the rest."""

    name: str
    doc: str


@dataclass
class Result:
    """Rows, and what they rest on. `window` has one entry per rank (and instance): see `Window.row`."""

    rows: pl.DataFrame
    window: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    #: Filled in by the front end that ran the analysis.
    command: str = ""
    sources: list[SourceInfo] = field(default_factory=list)
    ranks: int = 0

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{n}</li>" for n in self.notes)
        html: str = self.rows._repr_html_()
        return f"<b>stepscope {self.command}</b>{html}<ul>{notes}</ul>"


def rows(columns: Sequence[Col], data: Sequence[dict[str, Any]] | pl.DataFrame) -> pl.DataFrame:
    """Rows with exactly `columns`, in their order; also when there are none."""
    names = [c.name for c in columns]
    if isinstance(data, pl.DataFrame):
        return data.select(names)
    if not data:
        return pl.DataFrame(schema=dict.fromkeys(names, pl.Null))
    return pl.DataFrame(list(data), infer_schema_length=None).select(names)
