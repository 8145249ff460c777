"""Rows of a table as events of a timeline: on one clock, on their tracks, with their columns as arguments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from stepscope.export.content import FLOWS, Content
from stepscope.export.tracks import Tracks, tracks_of
from stepscope.model.exported import TITLES, arguments, ends
from stepscope.model.spill import kept

#: Columns of an event that are not arguments.
OWN = ("start", "end", "track", "title", *FLOWS)
#: Derived columns that whoever looks at an event wants to see; who reads the export back derives them again.
_SHOWN = {"ops": ("role",)}


@dataclass(frozen=True)
class Layer:
    """Events of one table and rank: `OWN`, then arguments. The title, and arguments in `texts`, are numbers of texts.

    They are in the order in which a viewer's stack needs them: of those that start together, the longest first.
    """

    table: str
    rank: int | None
    events: pl.DataFrame
    texts: frozenset[str] = frozenset()

    @property
    def lasting(self) -> bool:
        """Whether events have a length, or are moments."""
        return self.table not in TITLES or ends(self.table)

    def chunks(self, rows: int = 1 << 14) -> Iterator[pl.DataFrame]:
        """The events, some at a time: what is made of them takes many times their memory."""
        for first in range(0, self.events.height, rows):
            yield self.events.slice(first, rows)


class Texts:
    """Texts by number: those of the profile, and what comes with words of its own (kinds, findings)."""

    def __init__(self, names: pl.Series) -> None:
        self.all: list[str] = names.to_list()
        self._own: dict[str, int] = {}

    def of(self, text: str) -> int:
        if text not in self._own:
            self._own[text] = len(self.all)
            self.all.append(text)
        return self._own[text]

    def words(self, column: pl.Series) -> pl.Series:
        """Numbers for a column of words."""
        assert isinstance(column.dtype, pl.Enum)
        ids = pl.Series([self.of(word) for word in column.dtype.categories.to_list()], dtype=pl.UInt32)
        return ids.gather(column.to_physical().cast(pl.UInt32)).alias(column.name)


def layer_of(
    content: Content, tracks: Tracks, texts: Texts, row: dict[str, Any], table: str, frame: pl.DataFrame
) -> Layer:
    """The rows of one rank; `row` is the rank's own in the table of ranks."""
    frame = frame.filter(pl.col("start_ns").is_not_null())
    start = content.clock.at(row["rank"], frame["start_ns"].to_numpy())
    end = content.clock.at(row["rank"], frame["end_ns"].to_numpy()) if ends(table) else start
    order = np.lexsort((-end, start))
    if not np.array_equal(order, np.arange(len(order))):
        frame, start, end = frame[order], start[order], end[order]
    named = frame[TITLES[table]]
    title = texts.words(named) if isinstance(named.dtype, pl.Enum) else named
    shown = frame.with_columns(content.names.gather(title).alias("title")) if table == "counters" else frame
    columns: list[pl.Series] = [
        pl.Series("start", start),
        pl.Series("end", end),
        pl.Series("track", tracks_of(tracks, row, table, shown, start, end)),
        title.alias("title"),
        *(frame[c] for c in FLOWS if c in frame.columns),
    ]
    ids = {c.name for c in arguments(table) if c.name_id}
    for name, default in [
        *((c.name, c.instead) for c in arguments(table)),
        *((c, None) for c in _SHOWN.get(table, ())),
    ]:
        values = frame[name]
        if default is not None:
            values = frame.select(pl.when(pl.col(name) != default).then(name).alias(name)).to_series()
        if values.null_count() == len(values):
            continue
        if isinstance(values.dtype, pl.Enum):
            values = texts.words(values)
            ids.add(name)
        columns.append(values)
    return Layer(table, row["rank"], kept(pl.DataFrame(columns)), frozenset(ids & {c.name for c in columns}))
