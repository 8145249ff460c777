"""An export with the traces that none of our files has: MPI, OpenMP, OpenACC, unified memory, OS runtime, libraries."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

_COLUMNS = {
    "MPI_RANKS": "globalTid, rank",
    "MPI_P2P_EVENTS": "start, end, globalTid, textId, tag, remoteRank, size",
    "MPI_START_WAIT_EVENTS": "start, end, globalTid, textId",
    "MPI_OTHER_EVENTS": "start, end, globalTid, textId",
    "MPI_COLLECTIVES_EVENTS": "start, end, globalTid, textId, rootRank, size, recvSize",
    "OPENMP_EVENT_KIND_PARALLEL": "start, end, globalTid, nameId",
    "OPENMP_EVENT_KIND_WORK": "start, end, globalTid, nameId",
    "CUPTI_ACTIVITY_KIND_OPENACC_DATA": "start, end, globalTid, nameId, eventKind, lineNo, srcFile",
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": "start, globalPid, address, CpuInstruction",
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": "start, end, globalPid, deviceId, address, numberOfPageFaults",
    "OSRT_API": "start, end, eventClass, globalTid, nameId",
    "CUDNN_EVENTS": "start, end, globalTid, nameId",
    "CUBLAS_EVENTS": "start, end, globalTid, nameId",
}


def add_traces(path: Path, seed: int = 3) -> None:
    """Add the tables, with random records of one thread, to an SQLite export that has CUDA calls and copies."""
    draw = random.Random(seed)
    base = 0x7F00_0000_0000
    with sqlite3.connect(path) as db:
        (thread,) = db.execute("SELECT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME LIMIT 1").fetchone()
        process = thread & ~0xFFFFFF

        def text(value: str) -> int:
            known = db.execute("SELECT id FROM StringIds WHERE value = ?", (value,)).fetchone()
            if known is None:
                known = db.execute(
                    "INSERT INTO StringIds SELECT max(id) + 1, ? FROM StringIds RETURNING id", (value,)
                ).fetchone()
            return int(known[0])

        def span() -> tuple[int, int]:
            start = draw.randrange(10**6, 5 * 10**8)
            return start, start + draw.randrange(1, 10**6)

        def add(table: str, *values: object) -> None:
            db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)

        for table, columns in _COLUMNS.items():
            db.execute(f"CREATE TABLE {table} ({', '.join(f'{c} INTEGER' for c in columns.split(', '))})")
        add("MPI_RANKS", thread, 3)
        for i in range(30):
            add("MPI_P2P_EVENTS", *span(), thread, text(draw.choice(["MPI_Send", "MPI_Recv"])), i, i % 4, i * 1000)
            add("MPI_START_WAIT_EVENTS", *span(), thread, text("MPI_Wait"))
            add("MPI_OTHER_EVENTS", *span(), thread, text("MPI_Comm_rank"))
            add("MPI_COLLECTIVES_EVENTS", *span(), thread, text("MPI_Bcast"), draw.choice([None, 0]), i * 10, i * 7)
            kind = draw.choice(["PARALLEL", "WORK"])  # each table has names of its own
            add(f"OPENMP_EVENT_KIND_{kind}", *span(), thread, text(f"omp {kind} {i % 3}"))
            file = text("f.c") if i % 5 else None
            add("CUPTI_ACTIVITY_KIND_OPENACC_DATA", *span(), thread, text("acc enter"), 1, i % 4, file)
            add("CUDA_UM_CPU_PAGE_FAULT_EVENTS", span()[0], process, base + i % 7 * 65536, text(f"instruction {i % 4}"))
            add("CUDA_UM_GPU_PAGE_FAULT_EVENTS", *span(), process, 0, base + i % 9 * 65536, i % 5 + 1)
            add("OSRT_API", *span(), 27 if i % 6 else 31, thread, text(draw.choice(["read", "poll"])))
            add("CUDNN_EVENTS", *span(), thread, text("cudnnConvolutionForward"))
            add("CUBLAS_EVENTS", *span(), thread, text("cublasGemmEx"))
        columns = [row[1] for row in db.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_MEMCPY)")]
        like = dict(
            zip(columns, db.execute("SELECT * FROM CUPTI_ACTIVITY_KIND_MEMCPY LIMIT 1").fetchone(), strict=True)
        )
        for i in range(40):
            start, end = span()
            copy = {"start": start, "end": end, "copyKind": 11 + i % 2, "bytes": 4096 * (i + 1), "correlationId": 0}
            row = like | copy | {"virtualAddress": base + i % 11 * 65536}
            add("CUPTI_ACTIVITY_KIND_MEMCPY", *row.values())
    db.close()


#: What an export may lack of unified memory, as SQL that takes it away.
UM_GONE = {
    "copies to the host": "DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 12",
    "copies to the device": "DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 11",
    "copies": "DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind > 10",
    "addresses": "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET virtualAddress = NULL WHERE copyKind = 11",
    "counts": "UPDATE CUDA_UM_GPU_PAGE_FAULT_EVENTS SET numberOfPageFaults = NULL",
}


def without(path: Path, folder: Path, *statements: str) -> Path:
    """A copy of an export after these statements."""
    copy = folder / "less.sqlite"
    copy.write_bytes(path.read_bytes())
    with sqlite3.connect(copy) as db:
        for statement in statements:
            db.execute(statement)
    db.close()
    return copy


def only(path: Path, folder: Path, *events: str) -> Path:
    """A copy that has only these tables of events."""
    with sqlite3.connect(path) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    db.close()
    kept = (*events, "StringIds", "ProcessStreams", "ThreadNames")
    described = ("TARGET_INFO", "META_DATA", "ANALYSIS", "ENUM", "EXPORT")
    gone = [t for t in tables if t not in kept and not t.startswith(described)]
    return without(path, folder, *(f"DROP TABLE {t}" for t in gone))
