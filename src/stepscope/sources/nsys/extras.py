"""The model's `records`: traces that only reports in nsys's manner ask for, of every process in the export."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope.model.columns import RECORD_KIND, Part
from stepscope.model.schema import TABLES
from stepscope.model.source import Chunk
from stepscope.sources.nsys.events import Export, chunk
from stepscope.sources.nsys.strings import Names
from stepscope.sources.nsys.tables import Field, field

#: Exported tables by kind; OpenMP and OpenACC have one table per kind of event.
_TABLES: dict[str, str] = {
    "OSRT_API": "osrt",
    "PROFILER_OVERHEAD": "overhead",
    "MPI_P2P_EVENTS": "mpi_p2p",
    "MPI_START_WAIT_EVENTS": "mpi_start_wait",
    "MPI_OTHER_EVENTS": "mpi_other",
    "MPI_COLLECTIVES_EVENTS": "mpi_collective",
    "CUDNN_EVENTS": "cudnn",
    "CUBLAS_EVENTS": "cublas",
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": "um_cpu_fault",
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": "um_gpu_fault",
}
_FAMILIES = (
    (re.compile(r"OPENMP_EVENT_KIND_.+"), "openmp"),
    (re.compile(r"CUPTI_ACTIVITY_KIND_OPENACC_.+"), "openacc"),
)
#: Migrations of unified memory are copies too, but only these know the address.
_COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
_MIGRATIONS = (11, 12)

_FIELDS: dict[str, Field] = {
    "process": field("globalTid", "globalPid"),
    "start_ns": field("start"),
    "end_ns": field("end"),
    "name": field("nameId", "textId", "CpuInstruction", "cpuInstruction"),
    "event_class": field("eventClass", "copyKind"),
    "row": field("rowid"),
    "file": field("srcFile"),
    "line": field("lineNo"),
    "tag": field("tag"),
    "peer": field("remoteRank"),
    "root": field("rootRank"),
    "bytes": field("size", "bytes"),
    "recv_bytes": field("recvSize"),
    "address": field("address", "virtualAddress"),
    "count": field("numberOfPageFaults"),
}


def extra_tables(export: Export) -> Iterator[tuple[str, str]]:
    """(kind, exported table) of all there are, in a fixed order."""
    there = export.tables.names()
    yield from ((kind, table) for table, kind in _TABLES.items() if table in there)
    for pattern, kind in _FAMILIES:
        yield from ((kind, table) for table in sorted(there) if pattern.fullmatch(table))
    if "virtualAddress" in export.tables.columns(_COPIES):
        yield "um_copy", _COPIES


def has_extras(export: Export) -> bool:
    return any(export.tables.has(table) for _, table in extra_tables(export))


def read_extras(export: Export, part: Part) -> Chunk:
    names = Names()
    wanted = TABLES["records"].part(part)
    fields = {k: f for k, f in _FIELDS.items() if k == "process" or k in wanted}
    frames = [_read(export, kind, table, fields, names, "mpi_rank" in wanted) for kind, table in extra_tables(export)]
    frame = pl.concat(frames, how="diagonal") if frames else pl.DataFrame(schema=wanted)
    return chunk(export, frame, "records", part, names)


def _read(export: Export, kind: str, table: str, fields: dict[str, Field], names: Names, ranked: bool) -> pl.DataFrame:
    only = ("copyKind", _MIGRATIONS) if kind == "um_copy" else None
    raw = export.tables.frame(table, fields, only=only)
    process = raw["process"]
    frame = raw.drop("process").with_columns(
        export.proc_of(process).fill_null(0).alias("proc"),
        pl.lit(kind, dtype=RECORD_KIND).alias("kind"),
        _pid(process),
        _tid(process),
        pl.col("start_ns").fill_null(0),
        pl.coalesce("end_ns", "start_ns", pl.lit(0)).alias("end_ns"),
    )
    if ranked and kind.startswith("mpi_"):
        ranks = export.tables.frame("MPI_RANKS", {"process": field("globalTid"), "mpi_rank": field("rank")})
        ranks = ranks.unique("process", keep="first")
        frame = frame.with_columns(
            process.to_frame().join(ranks, on="process", how="left", maintain_order="left")["mpi_rank"]
        )
    texts = [names.by_id(frame[c], export.strings) for c in ("name", "file") if c in frame.columns]
    return frame.with_columns(texts) if texts else frame


def _pid(process: pl.Series) -> pl.Series:
    ids = process.fill_null(0).to_numpy()
    return pl.Series("pid", (ids >> 24) & 0xFFFFFF)


def _tid(process: pl.Series) -> pl.Series:
    ids = process.fill_null(0).to_numpy()
    return pl.Series("tid", (ids & 0xFFFFFF).astype(np.int32))
