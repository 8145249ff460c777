"""Which exported column feeds which column of the model: every difference between schema versions is here.

A version is never asked for. An `Event` names, per model column, the exported columns that may hold it, newest first;
the export is probed for them (`Tables.columns`), and what it lacks is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from stepscope.model.columns import API, COPY_KIND, HOST_KIND, MEM_KIND, RANGE_KIND, Dtype
from stepscope.sources.nsys.tables import Field, Kind

#: How nsys writes "none" in unsigned 32-bit columns (stream, event, device).
NONE_U32 = 0xFFFFFFFF
MAX_I32 = 0x7FFFFFFF

Convert = Callable[[pl.Expr], pl.Expr]


def whole(value: pl.Expr) -> pl.Expr:
    return value


def present(value: pl.Expr) -> pl.Expr:
    """Zero means none: correlation ids, graph nodes."""
    return pl.when(value != 0).then(value)


def small(value: pl.Expr) -> pl.Expr:
    """32-bit ids and sizes: null where nsys wrote none."""
    return pl.when((value >= 0) & (value <= MAX_I32)).then(value).cast(pl.Int32)


def stream(value: pl.Expr) -> pl.Expr:
    """Stream ids: -1 where there is none."""
    return small(value).fill_null(-1)


def status(value: pl.Expr) -> pl.Expr:
    return value.cast(pl.Int32, strict=False)


def tid(value: pl.Expr) -> pl.Expr:
    """The thread of a `globalTid`: hardware, machine, process and thread share its 64 bits."""
    return (value & 0xFFFFFF).cast(pl.Int32)


def color(value: pl.Expr) -> pl.Expr:
    return (value & 0xFFFFFFFF).cast(pl.UInt32)


def coded(codes: Mapping[int, str], default: str, dtype: pl.Enum) -> Convert:
    """A number of nsys as a word of the model."""

    def convert(value: pl.Expr) -> pl.Expr:
        return value.replace_strict(dict(codes), default=default, return_dtype=dtype)

    return convert


_COPY = {1: "HtoD", 2: "DtoH", **dict.fromkeys(range(3, 8), "array"), 8: "DtoD", 9: "HtoH", 10: "PtoP"}
copy_kind = coded({**_COPY, **dict.fromkeys(range(11, 14), "unified")}, "unknown", COPY_KIND)
_MEM = {0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "static", 6: "static"}
mem_kind = coded(_MEM, "unknown", MEM_KIND)
api = coded({0: "runtime", 1: "driver"}, "other", API)
range_kind = coded({59: "pushpop", 60: "startend", 34: "mark"}, "mark", RANGE_KIND)


@dataclass(frozen=True)
class From:
    """A column of the model: where it comes from and how."""

    field: Field
    convert: Convert


def col(*names: str, to: Convert = whole, kind: Kind = "int") -> From:
    return From(Field(names, kind), to)


@dataclass(frozen=True)
class Event:
    """One event table of the export."""

    table: str
    columns: Mapping[str, From]
    #: The column whose upper 40 bits are the process.
    process: tuple[str, ...] = ("globalPid", "globalTid")
    #: Columns of the model that are the same for every row, with their types.
    constants: Mapping[str, tuple[Any, Dtype]] = field(default_factory=dict)
    #: Host records from before the capture are not part of it.
    drop_early: bool = False
    #: Columns that hold ids of the string table.
    named: frozenset[str] = frozenset()


_TIMES = {"start_ns": col("start"), "end_ns": col("end")}
_PLACE = {
    **_TIMES,
    "device": col("deviceId", to=small),
    "stream": col("streamId", to=small),
    "correlation": col("correlationId", to=present),
    "context": col("contextId", to=small),
    "graph_node": col("graphNodeId", to=present),
    "green_context": col("greenContextId", to=lambda value: small(present(value))),
    "row": col("rowid"),
}
_ENUMS: dict[str, tuple[Any, Dtype]] = {
    "copy_kind": ("none", COPY_KIND),
    "src_kind": ("none", MEM_KIND),
    "dst_kind": ("none", MEM_KIND),
}

KERNEL = Event(
    "CUPTI_ACTIVITY_KIND_KERNEL",
    {
        **_PLACE,
        "name": col("demangledName", "shortName"),
        "short_name": col("shortName"),
        "mangled_name": col("mangledName"),
        "grid_x": col("gridX", to=small),
        "grid_y": col("gridY", to=small),
        "grid_z": col("gridZ", to=small),
        "block_x": col("blockX", to=small),
        "block_y": col("blockY", to=small),
        "block_z": col("blockZ", to=small),
        "registers": col("registersPerThread", to=small),
        "smem_static": col("staticSharedMemory", to=small),
        "smem_dynamic": col("dynamicSharedMemory", to=small),
    },
    constants=_ENUMS,
    named=frozenset({"name", "short_name", "mangled_name"}),
)
MEMCPY = Event(
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    {
        **_PLACE,
        "bytes": col("bytes"),
        "copy_kind": col("copyKind", to=copy_kind),
        "src_kind": col("srcKind", to=mem_kind),
        "dst_kind": col("dstKind", to=mem_kind),
        "src_device": col("srcDeviceId", to=small),
        "dst_device": col("dstDeviceId", to=small),
        "copy_code": col("copyKind", to=status),
        "src_code": col("srcKind", to=status),
        "dst_code": col("dstKind", to=status),
    },
)
MEMSET = Event(
    "CUPTI_ACTIVITY_KIND_MEMSET",
    {
        **_PLACE,
        "bytes": col("bytes"),
        "src_kind": col("memKind", to=mem_kind),
        "src_code": col("memKind", to=status),
    },
    constants=_ENUMS,
)
#: Whole graphs, where the capture was not asked for their nodes.
GRAPH = Event("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", {**_PLACE, "graph": col("graphId", "graphExecId")}, constants=_ENUMS)

RUNTIME = Event(
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    {
        **_TIMES,
        "tid": col("globalTid", to=tid),
        "name": col("nameId"),
        "correlation": col("correlationId", to=present),
        "api": col("eventClass", to=api),
        "raw_name": col("nameId"),
        "return_value": col("returnValue", to=status),
        "callchain": col("callchainId"),  # chains are numbered from 0; a number without a chain finds none
        "thread": col("globalTid"),
        "row": col("rowid"),
    },
    process=("globalTid",),
    drop_early=True,
    named=frozenset({"name", "raw_name"}),
)

NVTX = Event(
    "NVTX_EVENTS",
    {
        **_TIMES,
        "nsys_type": col("eventType", to=status),
        "kind": col("eventType", to=range_kind),
        "tid": col("globalTid", to=tid),
        "text": col("text", kind="bytes"),
        "text_id": col("textId"),
        "domain_id": col("domainId"),
        "end_tid": col("endGlobalTid", to=tid),
        "color": col("color", to=color),
        "category": col("category"),
        "row": col("rowid"),
        "payload": col("binaryData", kind="bytes"),
        "json": col("jsonText", kind="bytes"),
        "json_id": col("jsonTextId"),
    },
    process=("globalTid",),
    drop_early=True,
)

SYNC = Event(
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    {
        **_TIMES,
        "stream": col("streamId", to=stream),
        "correlation": col("correlationId", to=present),
        "event_id": col("eventId", to=small),
        "event_sync": col("eventSyncId", to=lambda value: small(present(value))),
    },
    drop_early=True,
)
#: Records carry no time of their own before schema 3.25, whose `timestamp` is the device's: the host call gives it.
RECORD = Event(
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
    {
        "stream": col("streamId", to=stream),
        "correlation": col("correlationId", to=present),
        "event_id": col("eventId", to=small),
        "event_sync": col("eventSyncId", to=lambda value: small(present(value))),
    },
)
#: Operations on the GPU, in the order in which ties are kept.
GPU_TABLES = (KERNEL.table, MEMCPY.table, MEMSET.table, GRAPH.table)

_HOST = {**_TIMES, "tid": col("globalTid", to=tid), "callchain": col("callchainId", to=present)}


def _host(table: str, kind: str, name: str) -> Event:
    return Event(
        table,
        {**_HOST, "name": col(name)},
        process=("globalTid",),
        constants={"kind": (kind, HOST_KIND)},
        drop_early=True,
        named=frozenset({"name"}),
    )


HOST = (
    _host("OSRT_API", "osrt", "nameId"),
    _host("MPI_COLLECTIVES_EVENTS", "mpi", "textId"),
    _host("MPI_P2P_EVENTS", "mpi", "textId"),
    _host("MPI_START_WAIT_EVENTS", "mpi", "textId"),
    _host("MPI_OTHER_EVENTS", "mpi", "textId"),
    _host("CUDNN_EVENTS", "cudnn", "nameId"),
    _host("CUBLAS_EVENTS", "cublas", "nameId"),
    *(_host(f"UCP_{what}EVENTS", "ucx", "textId") for what in ("", "SUBMIT_", "PROGRESS_")),
    *(_host(f"CUPTI_ACTIVITY_KIND_OPENACC_{what}", "openacc", "nameId") for what in ("DATA", "LAUNCH", "OTHER")),
)
