"""From raw event tables to columns of the model: one engine for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl

from stepscope.model.schema import Part
from stepscope.model.source import Chunk, Quality, canonical, conform
from stepscope.sources.nsys.mapping import GPU_TABLES, NVTX, RUNTIME, Event
from stepscope.sources.nsys.strings import Names, Strings
from stepscope.sources.nsys.tables import Field, Tables


@dataclass
class Export:
    """One opened export, and what reading it turned up."""

    tables: Tables
    quality: Quality = field(default_factory=Quality)
    #: Process keys (the upper 40 bits of a global id) in order of `proc`; set once the processes are known.
    keys: tuple[int, ...] = ()
    capture_ns: int | None = None
    #: CUDA ordinals that each process used, by its key.
    devices: dict[int, set[int]] = field(default_factory=dict)

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

    def proc_of(self, ids: pl.Series) -> pl.Series:
        """The process of each global id; null for processes that are no rank."""
        if len(self.keys) == 1 and ids.null_count() == len(ids):
            return pl.Series("proc", np.zeros(len(ids), dtype=np.int32))  # exports of 2020 name no process
        keys = np.array(self.keys, dtype=np.int64)
        order = np.argsort(keys)
        wanted = ids.fill_null(-1).to_numpy() >> 24
        if len(keys) == 0:
            return pl.Series("proc", [None] * len(ids), dtype=pl.Int32)
        at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
        proc = order[at].astype(np.int32)
        known = keys[proc] == wanted
        if known.all():
            return pl.Series("proc", proc)
        return pl.DataFrame({"proc": proc, "known": known}).select(pl.when("known").then("proc").alias("proc"))["proc"]


def read_events(
    export: Export,
    event: Event,
    columns: Iterable[str],
    *,
    only: tuple[str, Sequence[int]] | None = None,
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
    lost: Counter[str] = Counter()

    def convert(raw: pl.DataFrame) -> pl.DataFrame:
        proc = export.proc_of(raw[_key(process)])
        frame = raw.select(
            proc,
            *(source.convert(pl.col(_key(source.field))).alias(name) for name, source in sources.items()),
            *constants,
        )
        if proc.null_count():
            lost["foreign"] += proc.null_count()
            keep = proc.is_not_null()
            frame, raw = frame.filter(keep), raw.filter(keep)
        if drop_early and (early_rows := int((raw["start"] < 0).sum())):
            lost["early"] += early_rows
            frame = frame.filter(raw["start"] >= 0)
        return frame

    frame = export.tables.frame(event.table, fields, each=convert, only=only)
    if lost["early"]:
        export.quality.note(f"{lost['early']} rows of {event.table} started before the capture: left out")
    if lost["foreign"]:
        export.quality.note(f"{lost['foreign']} rows of {event.table} belong to processes that are no rank: left out")
    return frame


def _key(field: Field) -> str:
    return "|".join(field.names)


def chunk(frame: pl.DataFrame, table: str, part: Part, names: Names) -> Chunk:
    """The finished part of a table."""
    return Chunk(canonical(conform(frame, table, part), table), names.series())
