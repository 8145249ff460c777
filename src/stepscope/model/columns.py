"""What a table of the model is made of: columns, their parts, and the vocabularies of those that are words."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

import polars as pl

#: `launch` is some of what `detail` has: how kernels were launched, which several questions need of all ops.
Part = Literal["core", "detail", "launch"]

OP_KIND = pl.Enum(["kernel", "memcpy", "memset", "graph"])
COPY_KIND = pl.Enum(["none", "HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "unified", "array", "unknown"])
MEM_KIND = pl.Enum(["none", "pageable", "pinned", "device", "array", "managed", "static", "unknown"])
ROLE = pl.Enum(["compute", "comm", "copy"])
API = pl.Enum(["runtime", "driver", "other"])
RANGE_KIND = pl.Enum(["pushpop", "startend", "mark"])
SYNC_KIND = pl.Enum(["event_sync", "event_query", "stream_wait", "stream_sync", "context_sync", "record", "unknown"])
_MPI_KINDS = ("mpi_p2p", "mpi_start_wait", "mpi_other", "mpi_collective")
_UM_KINDS = ("um_cpu_fault", "um_gpu_fault", "um_copy")
RECORD_KIND = pl.Enum(["osrt", "overhead", *_MPI_KINDS, "openmp", "openacc", "cudnn", "cublas", *_UM_KINDS])
_LIBRARIES = ("cublas", "cudnn", "ucx", "openacc")
HOST_KIND = pl.Enum(["osrt", "cpu_op", "python", "gil", "compile", "gc", "mpi", "other", *_LIBRARIES])
_SEGMENT_ACTIONS = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")
ALLOC_ACTION = pl.Enum(["alloc", "free_requested", "free", *_SEGMENT_ACTIONS, "oom", "snapshot", "unknown"])
BLOCK_STATE = pl.Enum(["allocated", "pending", "free"])
SAMPLE_KIND = pl.Enum(["native", "python"])
OFF_CPU_STATE = pl.Enum(["waiting", "runnable", "unknown"])
DEPENDENCY_KIND = pl.Enum(["graph", "other"])

Dtype = pl.DataType | type[pl.DataType]

#: What stands for a name that the source does not have.
NO_NAME = "(no name)"


@dataclass(frozen=True)
class Column:
    """One column: `name_id` columns hold ids of the string table; `derived` ones are computed by the profile.

    What the door (`model.door`) makes of a null: where `nullable`, it stays; else `instead` takes its place, `NO_NAME`
    that of a name; and where there is nothing to take its place, the row is left out. A value below `least` or above
    `most` is as good as a null.
    """

    name: str
    dtype: Dtype
    doc: str
    part: Part = "core"
    launch: bool = False
    derived: bool = False
    name_id: bool = False
    nullable: bool = False
    instead: int | str | bool | None = None
    least: int | None = None
    most: int | None = None

    @property
    def required(self) -> bool:
        """Nothing can take the place of a null: a row without it says nothing."""
        return not self.nullable and self.instead is None and not self.name_id


@dataclass(frozen=True)
class Table:
    """One table of the model, its rows sorted by `keys`."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...] = ("start_ns", "end_ns")
    #: False where its rows are of a source, not of a rank: what was measured apart from any timeline.
    ranked: bool = True

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def part(self, part: Part) -> dict[str, Dtype]:
        """Columns that a source delivers for `part`: `proc`, the sort keys, then that part's own."""
        chosen = (c for c in self.columns if (c.launch if part == "launch" else c.part == part))
        own = {c.name: c.dtype for c in chosen if not c.derived and c.name != "rank"}
        keys = {c.name: c.dtype for c in self.columns if c.name in self.keys}
        return {"proc": pl.Int32, **keys, **own}

    def name_ids(self) -> list[str]:
        """Columns that hold ids of the string table."""
        return [c.name for c in self.columns if c.name_id]

    def delivered(self, names: Collection[str]) -> Iterator[Column]:
        """The columns of these names, as a source delivers them."""
        return (c for c in self.columns if c.name in names and not c.derived)

    def has_detail(self) -> bool:
        return any(c.part == "detail" for c in self.columns)
