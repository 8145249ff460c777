"""What the profile needs of a source, whatever its format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl

from stepscope.files import budget
from stepscope.intervals.arrays import in_order
from stepscope.model.columns import Part
from stepscope.model.note import Note, noted
from stepscope.model.schema import PROCESSES, TABLES
from stepscope.model.spill import gathered

#: What finding the order of all rows at once takes, per row.
_SORTING_BYTES = 48


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
    #: UTC of the first and the last record, about; null where the source does not say
    recorded_ns: tuple[int, int] | None = None
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


class Reader(Protocol):
    """One file or directory, as its format's package reads it. Cheap to open: tables are read when asked for."""

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


class Source(Reader, Protocol):
    """One opened file or directory whose answers are all of one content."""

    def check(self) -> None:
        """`Changed` where the file is no longer the one that was opened, and something else may have been read."""
        ...


def canonical(frame: pl.DataFrame, table: str) -> pl.DataFrame:
    """Rows by (proc, keys), ties in file order; null processes must be gone by now.

    Exports are mostly in time order already, so the sort is paid only where needed: first whether the rows are in
    order, then whether a stable (radix) sort by process suffices.
    """
    order = order_of(frame, table)
    return frame if order is None else gathered(frame, order)


def order_of(frame: pl.DataFrame, table: str) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
    """The `canonical` order of the rows; None where they are in it."""
    if frame.height < 2:
        return None
    keys = [_key(frame[k]) for k in ("proc", *TABLES[table].keys)]
    if _ascending(keys):
        return None
    if not budget.roomy(_SORTING_BYTES * frame.height):
        return _order_by_process(keys)
    return np.argsort(_short(keys[0]), kind="stable") if _ascending(keys[1:]) else in_order(_short(keys[0]), *keys[1:])


def _order_by_process(keys: list[np.ndarray[tuple[int], np.dtype[np.int64]]]) -> np.ndarray[Any, np.dtype[Any]]:
    """The same order, found a process at a time: it takes little more memory than the order itself."""
    order = np.empty(len(keys[0]), dtype=np.uint32 if len(keys[0]) < 1 << 32 else np.int64)
    at = 0
    for process in pl.Series(keys[0]).unique().sort().to_list():
        rows = np.flatnonzero(keys[0] == process)
        own = [key[rows] for key in keys[1:]]
        order[at : at + len(rows)] = rows if _ascending(own) else rows[np.lexsort(own[::-1])]
        at += len(rows)
    return order


def _key(column: pl.Series) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Rows without a key come first: no order is right for them, but it must be the same for every part."""
    return (column.fill_null(column.dtype.min()) if column.null_count() else column).to_numpy()  # type: ignore[attr-defined]


def _short(
    proc: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> np.ndarray[tuple[int], np.dtype[np.int16]] | np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Sixteen bits are sorted by radix; there are rarely more processes than they hold."""
    return proc.astype(np.int16) if int(proc.max()) < 1 << 15 else proc


def conform(frame: pl.DataFrame, table: str, part: Part, quality: Quality | None = None) -> pl.DataFrame:
    """Exactly the columns of the schema, in its order and types; absent columns become null.

    A value that does not fit its column becomes null, too; `quality` notes how many.
    """
    wanted = TABLES[table].part(part)
    # Column by column: Polars would copy all of them where one has other chunks.
    shaped = pl.DataFrame(
        [
            frame[name].cast(dtype, strict=False)
            if name in frame.columns
            else pl.Series(name, [None], dtype).new_from_index(0, frame.height)
            for name, dtype in wanted.items()
        ]
    )
    for name in wanted if quality is not None else ():
        lost = shaped[name].null_count() - frame[name].null_count() if name in frame.columns else 0
        if lost:
            assert quality is not None
            quality.note(noted("values-unknown", table=table, lost=lost, s="s" * (lost != 1), name=name))
    return shaped


def process_table(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """`schema.PROCESSES` of what a file says. Of a number that does not fit, the nearest: the door sees to it."""

    def fitting(value: Any, dtype: Any) -> Any:
        if not isinstance(value, int) or not dtype.is_integer():
            return value
        bits = 31 if dtype == pl.Int32 else 63
        return max(-(1 << bits), min(int(value), (1 << bits) - 1))

    columns = {c: [fitting(row.get(c), d) for row in rows] for c, d in PROCESSES.items()}
    return pl.DataFrame(columns, schema=PROCESSES)


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
