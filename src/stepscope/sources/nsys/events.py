"""From raw event tables to columns of the model: one engine for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.errors import BadInput
from stepscope.files import budget
from stepscope.model.columns import Part
from stepscope.model.note import noted
from stepscope.model.schema import TABLES
from stepscope.model.source import Chunk, Quality, conform, order_of
from stepscope.model.spill import gathered, kept
from stepscope.sources.nsys.mapping import GPU_TABLES, NVTX, RUNTIME, Event
from stepscope.sources.nsys.strings import Names, Strings
from stepscope.sources.nsys.tables import Field, Only, Tables

#: Of each op, what every part of the table has.
_IDENTITY = ("proc", *TABLES["ops"].keys)


@dataclass
class Export:
    """One opened export, and what reading it turned up."""

    tables: Tables
    quality: Quality = field(default_factory=Quality)
    #: Process keys (the upper 40 bits of a global id), ascending: `proc` is the place. Set once they are known.
    keys: tuple[int, ...] = ()
    capture_ns: int | None = None
    #: CUDA ordinals that each process used, by its key.
    devices: dict[int, set[int]] = field(default_factory=dict)
    #: The calls that were delivered: `syncs` looks up which of them waited, and they are the largest table of all.
    calls: Chunk | None = None
    #: What says which op a row is, as delivered, and the rows of the file in that order (None: as they stand).
    ops: tuple[pl.DataFrame, npt.NDArray[np.uint32] | None] | None = None

    @cached_property
    def strings(self) -> Strings:
        return Strings(self.tables)

    @cached_property
    def capture_end(self) -> int:
        """When the capture ended: as the export says, else the last end of anything."""
        if self.capture_ns is not None:
            return self.capture_ns
        ends = [self.tables.largest(t, "end") for t in (*GPU_TABLES, RUNTIME.table, NVTX.table)]
        return max((end for end in ends if end is not None), default=0)

    def left_out(self, what: str, count: int, why: str) -> None:
        """Loss never looks like zero."""
        if count:
            self.quality.note(noted("rows-left-out", what=what, number=count, more="s" if count > 1 else "", why=why))

    def require(self, event: Event, columns: Iterable[str]) -> None:
        """Events without a column of times are none."""
        there = self.tables.columns(event.table)
        for name in columns if there else ():
            names = event.columns[name].field.names
            if name in ("start_ns", "end_ns") and not there & set(names):
                raise BadInput(f"{self.tables.path}: {event.table} has no column {names[0]}", "export the report again")

    def note_reading(self) -> None:
        """What reading tables turned up: damage of the file, and values that are not of the type they should be."""
        sound, name = self.tables.soundness, self.tables.path.name
        if sound is not None and sound.damage is not None:
            self.quality.note(noted("file-damaged", name=name, damage=sound.damage))
        if sound is not None and sound.unchecked is not None:
            self.quality.note(noted("pages-not-checked", name=name, how=sound.unchecked))
        for (table, column), count in sorted(self.tables.unread.items()):
            self.quality.note(
                noted(
                    "values-unknown/column",
                    table=table,
                    column=column,
                    count=count,
                    more="s are" if count > 1 else " is",
                )
            )

    def proc_of(self, ids: pl.Series) -> pl.Series:
        """The process of each global id; null for processes that are not ranks."""
        if len(self.keys) == 1 and ids.null_count() == len(ids):
            return pl.Series("proc", np.zeros(len(ids), dtype=np.int32))  # exports of 2020 name no process
        keys = np.array(self.keys, dtype=np.int64)
        wanted = (ids.fill_null(-1) if ids.null_count() else ids).to_numpy() >> 24
        at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0)).astype(np.int32)
        has_process = keys[at] == wanted if len(keys) else np.zeros(len(ids), dtype=bool)
        proc = pl.Series("proc", at)
        return proc if has_process.all() else proc.set(pl.Series(~has_process), None)


def read_events(
    export: Export,
    event: Event,
    columns: Iterable[str],
    *,
    only: Only | None = None,
    early: bool = False,
) -> pl.DataFrame:
    """`proc` and `columns` of one event table, in file order; rows of no process, or before the capture, are dropped.

    `early` keeps what started before the capture. Columns in `event.named` still hold ids of the string table.
    """
    sources = {name: event.columns[name] for name in columns if name in event.columns}
    constants = [
        pl.lit(value, dtype=dtype).alias(name)
        for name, (value, dtype) in event.constants.items()
        if name in columns and name not in sources
    ]
    drop_early = event.drop_early and not early
    process = Field(event.process)
    # Keyed by exported column: what feeds two columns of the model (a thread's id is also its process) is read once.
    fields = {_key(f): f for f in (process, *(source.field for source in sources.values()))}
    if drop_early:
        fields.setdefault("start", Field(("start",)))
    # Row ranges are converted by several threads at once: appending to a list is safe, adding up is not.
    foreign: list[int] = []
    before: list[int] = []

    def convert(raw: pl.DataFrame) -> pl.DataFrame:
        proc = export.proc_of(raw[_key(process)])
        frame = raw.select(
            proc,
            *(source.convert(pl.col(_key(source.field))).alias(name) for name, source in sources.items()),
            *constants,
        )
        if proc.null_count():
            foreign.append(proc.null_count())
            keep = proc.is_not_null()
            frame, raw = frame.filter(keep), raw.filter(keep)
        if drop_early and (early_rows := int((raw["start"] < 0).sum())):
            before.append(early_rows)
            frame = frame.filter((raw["start"] >= 0).fill_null(True))  # what has no start is the door's to judge
        return frame

    export.require(event, sources)
    frame = export.tables.frame(event.table, fields, each=convert, only=only)
    if not early:  # look-ups by the way do not count
        export.left_out(event.table, sum(before), "that started before the capture")
        export.left_out(event.table, sum(foreign), "of processes that are not ranks")
    return frame


def _key(field: Field) -> str:
    return "|".join(field.names)


def chunk(export: Export, frame: pl.DataFrame, table: str, part: Part, names: Names) -> Chunk:
    """The finished part of a table."""
    export.note_reading()
    shaped = kept(conform(frame, table, part, export.quality))
    order = order_of(shaped, table)
    if order is not None:
        shaped = gathered(shaped, order)
    if table == "ops" and part == "core" and budget.roomy(8 * shaped.height):
        export.ops = shaped.select(_IDENTITY), None if order is None else order.astype(np.uint32)
    return Chunk(shaped, names.series())


def beside_ops(export: Export, frame: pl.DataFrame, part: Part) -> Chunk | None:
    """A part of `ops` whose rows the core has put in order: they are not read and sorted by again.

    `frame` is in file order, and lacks what says which op a row is. None where that is not known, or not of these rows.
    """
    if export.ops is None or export.ops[0].height != frame.height:
        return None
    export.note_reading()
    identity, order = export.ops
    shaped = kept(conform(frame, "ops", part, export.quality).drop(_IDENTITY))
    return Chunk(identity.hstack(shaped if order is None else gathered(shaped, order)))
