"""Every table that a query may mention: the model's as SQL wants them, those derived from them, and lists of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import polars as pl

from stepscope.derive.rank.data import ranks_of
from stepscope.errors import CannotAnswer
from stepscope.model.columns import Table
from stepscope.model.note import Note
from stepscope.model.profile import Profile
from stepscope.model.ranks import RANKS_DOC
from stepscope.model.result import Col
from stepscope.model.schema import TABLES
from stepscope.sql import derived

Made = tuple[pl.DataFrame, list[Note]]

_NR = Col("nr", "its row within the rank, from 0: what `launch`, `parent` and `op` refer to")
_DUR = Col("dur_ns", "end − start")
_OWN = Col("own", "says what the program was doing: no setup label, no mark, nothing of a tool")


@dataclass(frozen=True)
class Listed:
    """A table: its columns, the table of the model that must have been recorded, and how it is made."""

    name: str
    doc: str
    columns: tuple[Col, ...]
    make: Callable[[Profile], Made]
    of: str | None = None


@cache
def catalogue() -> dict[str, Listed]:
    """All tables, by name."""
    own = [*_of_the_model(), *(Listed(t.name, t.doc, t.columns, t.make) for t in derived.TABLES)]
    lists = [
        Listed(
            "tables",
            "The tables that there are.",
            (
                Col("table_name", "its name"),
                Col("recorded", "whether the profile recorded it; null for what is derived"),
                Col("doc", "what a row is"),
            ),
            _tables,
        ),
        Listed(
            "columns",
            "The columns of all tables.",
            (Col("table_name", "the table"), Col("column_name", "the column"), Col("doc", "what it says")),
            _columns,
        ),
    ]
    return {table.name: table for table in (*own, *lists)}


def _of_the_model() -> Iterator[Listed]:
    ranks = tuple(Col(name, doc) for name, doc in RANKS_DOC.items())
    yield Listed("ranks", "One row per process that used a GPU: the ranks of the job.", ranks, _ranks)
    for spec in TABLES.values():
        yield Listed(spec.name, spec.doc, _columns_of(spec, False), _maker(spec, False), spec.name)
        if spec.has_detail():
            doc = f"The same as `{spec.name}`, with all that was recorded of each row."
            yield Listed(f"{spec.name}_detail", doc, _columns_of(spec, True), _maker(spec, True), spec.name)


def _columns_of(spec: Table, detail: bool) -> tuple[Col, ...]:
    own = [Col(c.name, c.doc) for c in spec if detail or c.part == "core"]
    first = [own[0], _NR] if spec.ranked else [own[0]]
    return (*first, *own[1:], *([_DUR] if _spans(spec) else []), *([_OWN] if spec.name == "ranges" else []))


def _spans(spec: Table) -> bool:
    return {"start_ns", "end_ns"} <= {c.name for c in spec}


def _maker(spec: Table, detail: bool) -> Callable[[Profile], Made]:
    return lambda profile: (profile.once(_made, spec.name, detail), [])


def _made(profile: Profile, name: str, detail: bool) -> pl.DataFrame:
    """A table of the model with texts for ids of names, and what SQL cannot tell by itself."""
    spec = TABLES[name]
    if not profile.has(name):
        raise CannotAnswer(f"the profile has no table {name}: it was not recorded", "`stepscope info` says what was")
    frame = profile.table(name, detail)
    texts = profile.once(_texts, len(profile.names))
    named = [c for c in spec.name_ids() if c in frame.columns]
    frame = frame.with_columns(texts.gather(frame[c]).alias(c) for c in named)
    if spec.ranked:
        frame = frame.with_columns(_NR_WITHIN)
    if _spans(spec):
        frame = frame.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("dur_ns"))
    if name == "ranges":
        frame = frame.with_columns(_own(profile, frame.height))
    return frame.select(c.name for c in _columns_of(spec, detail))


_NR_WITHIN = pl.int_range(pl.len(), dtype=pl.Int64).over("rank").alias("nr")


def _texts(profile: Profile, count: int) -> pl.Series:
    """The string table as words of an enumeration: gathering them moves numbers, not texts."""
    names = profile.names.head(count)
    return pl.Series("name", names, dtype=pl.Enum(names)) if count else pl.Series("name", [], dtype=pl.String)


def _own(profile: Profile, height: int) -> pl.Series:
    own = np.zeros(height, dtype=bool)
    first = 0
    for data in ranks_of(profile):
        own[first + data.own_ranges] = True
        first += data.ranges.height
    return pl.Series("own", own)


def _ranks(profile: Profile) -> Made:
    return profile.ranks.select(*RANKS_DOC), []


def _tables(profile: Profile) -> Made:
    listed = catalogue().values()
    recorded = [None if t.of is None else profile.has(t.of) for t in listed]
    rows = zip((t.name for t in listed), recorded, (t.doc for t in listed), strict=True)
    schema = {"table_name": pl.String, "recorded": pl.Boolean, "doc": pl.String}
    return pl.DataFrame(list(rows), schema=schema, orient="row"), []


def _columns(_: Profile) -> Made:
    rows = [(t.name, c.name, c.doc) for t in catalogue().values() for c in t.columns]
    return pl.DataFrame(rows, schema=["table_name", "column_name", "doc"], orient="row"), []
