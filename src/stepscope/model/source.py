"""What the profile needs of a source, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl

from stepscope.model.columns import Part
from stepscope.model.note import Note
from stepscope.model.schema import TABLES


@dataclass(frozen=True)
class SourceInfo:
    """Where figures come from: repeated in every result."""

    file: str
    format: str  # nsys-sqlite, nsys-parquet, kineto
    tool: str | None = None  # version of the profiler
    schema: str | None = None  # version of the export schema
    #: UTC of the source's t=0; null where the source does not say.
    epoch_ns: int | None = None
    capture_ns: int | None = None  # length of the capture, where known
    #: what else it says about how it was made: driver, CUDA, options of the capture; for comparing runs
    facts: dict[str, str] = field(default_factory=dict)


@dataclass
class Quality:
    """Counted problems of a source: loss never looks like zero."""

    notes: list[Note] = field(default_factory=list)

    def note(self, note: Note) -> None:
        if note not in self.notes:
            self.notes.append(note)


@dataclass(frozen=True)
class Chunk:
    """One part of one table, with the texts that its `name_id` columns index. Ids mean nothing outside the chunk."""

    frame: pl.DataFrame
    names: pl.Series = field(default_factory=lambda: pl.Series("name", [], dtype=pl.String))


class Source(Protocol):
    """One opened file or directory. Cheap to open: tables are read when asked for."""

    path: Path

    @property
    def info(self) -> SourceInfo:
        """Where its figures come from."""
        ...

    @property
    def quality(self) -> Quality:
        """What it noted so far: grows as tables are read."""
        ...

    def processes(self) -> pl.DataFrame:
        """`schema.PROCESSES`, one row per process with GPU activity, CUDA calls or (failing both) ranges.

        `rank` and `rank_from` say what the source itself knows: `setup label`, `distributedInfo`, `NCCL payload`; null
        where it knows nothing.
        """
        ...

    def tables(self) -> frozenset[str]:
        """Tables the source has records for at all: a missing one is `cannot answer`, not zero."""
        ...

    def read(self, table: str, part: Part = "core") -> Chunk:
        """The columns of `schema.TABLES[table].part(part)`, in `canonical` order, same order for every part.

        A table that the source does not have is `Chunk(schema.empty(table, part))`.
        """
        ...


def canonical(frame: pl.DataFrame, table: str) -> pl.DataFrame:
    """Rows by (proc, keys), ties in file order; null processes must be gone by now.

    Exports are mostly in time order already, so the sort is paid only where needed: first whether the rows are in
    order, then whether a stable (radix) sort by process suffices.
    """
    spec = TABLES[table]
    if frame.height > 1:
        keys = [frame["proc"].to_numpy(), *(frame[k].to_numpy() for k in spec.keys)]
        if not _ascending(keys):
            timely = _ascending(keys[1:])
            frame = frame[np.argsort(keys[0].astype(np.int16), kind="stable") if timely else _order(keys)]
    return frame


def _order(keys: list[np.ndarray[tuple[int], np.dtype[np.int64]]]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """As `np.lexsort`, but faster on exports: they are runs in time order, which a stable (merge) sort only merges.

    Sorted by time and process first; what is left to do among rows that start together is little.
    """
    order = np.argsort(keys[1], kind="stable")
    order = order[np.argsort(keys[0][order].astype(np.int16), kind="stable")]
    proc, start = keys[0][order], keys[1][order]
    together = (proc[1:] == proc[:-1]) & (start[1:] == start[:-1])
    rows = np.flatnonzero(np.r_[together, False] | np.r_[False, together])
    tied = order[rows]
    order[rows] = tied[np.lexsort([k[tied] for k in keys[::-1]])]
    return order


def conform(frame: pl.DataFrame, table: str, part: Part) -> pl.DataFrame:
    """Exactly the columns of the schema, in its order and types; absent columns become null."""
    wanted = TABLES[table].part(part)
    return frame.select(
        [
            (pl.col(name).cast(dtype) if name in frame.columns else pl.lit(None, dtype=dtype).alias(name))
            for name, dtype in wanted.items()
        ]
    )


def _ascending(keys: list[np.ndarray[tuple[int], np.dtype[np.int64]]]) -> bool:
    """Whether rows are in lexicographic order of `keys`."""
    if not keys:
        return True
    tie = np.ones(len(keys[0]) - 1, dtype=bool)
    for key in keys:
        before, after = key[:-1], key[1:]
        if np.any(tie & (before > after)):
            return False
        tie &= before == after
        if not tie.any():
            return True
    return True
