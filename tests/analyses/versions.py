"""Simulated exports (schema 3.20.3) rewritten as other versions of nsys, and other formats of it, lay them out."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl

_SYNC, _RECORD, _NVTX = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "NVTX_EVENTS"
#: What `syncType` says for event, stream wait, stream and context (3.20.3: 1, 2, 2, 4).
_SYNC_TYPES = {"3.25.0": (1, 2, 3, 4), "3.16.1": (1, 2, 2, 0), "3.1.7": (2, 3, 3, 1)}
_TOOLS = {"3.25.0": "2025.6.1.0", "3.16.1": "2024.6.1.0", "3.1.7": "2023.2.1.0"}


def rewrite(path: Path, version: str) -> None:
    """The file as an export of that schema version: columns and tables that it lacks are gone, codes are its own."""
    major = tuple(map(int, version.split(".")))
    with closing(sqlite3.connect(path)) as db, db:
        _sync_types(db, _SYNC_TYPES[version])
        if major < (3, 17):
            for table in (_SYNC, _RECORD):
                db.execute(f"ALTER TABLE {table} DROP COLUMN eventSyncId")
            db.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY DROP COLUMN copyCount")
        if major < (3, 16, 4):
            db.execute("DROP TABLE TARGET_INFO_CUDA_DEVICE")
        if major < (3, 13, 2):  # the payloads of NCCL's ranges are not exported at all
            for table in ("SCHEMAS", "SCHEMA_ENTRIES", "ENUMS", "ENUM_ENTRIES"):
                db.execute(f"DROP TABLE NVTX_PAYLOAD_{table}")
            db.execute(f"ALTER TABLE {_NVTX} DROP COLUMN binaryData")
            db.execute(f"UPDATE {_NVTX} SET jsonText = NULL")
        if major < (3, 7, 2):
            for table in ("KERNEL", "MEMCPY", "MEMSET", "SYNCHRONIZATION", "CUDA_EVENT"):
                if db.execute(f"SELECT 1 FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_{table}'").fetchone():
                    db.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_{table} DROP COLUMN greenContextId")
            db.execute(
                "CREATE TABLE TARGET_INFO_CUDA_NULL_STREAM AS SELECT nullStreamId AS streamId, hwId, vmId, processId, "
                "contextId FROM TARGET_INFO_CUDA_CONTEXT_INFO"
            )
            db.execute("DROP TABLE TARGET_INFO_CUDA_CONTEXT_INFO")
        if major < (3, 6):
            db.execute("ALTER TABLE META_DATA_EXPORT RENAME TO EXPORT_META_DATA")
            db.execute("DROP TABLE META_DATA_CAPTURE")
        if major >= (3, 25):  # records have a time, but the device's
            db.execute(f"ALTER TABLE {_RECORD} ADD COLUMN timestamp INTEGER")
            db.execute(f"UPDATE {_RECORD} SET timestamp = 123456789012345 + correlationId")
            db.execute("ALTER TABLE TARGET_INFO_SESSION_START_TIME ADD COLUMN systemClockNs INTEGER")
            db.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN graphId INTEGER")
        meta = "EXPORT_META_DATA" if major < (3, 6) else "META_DATA_EXPORT"
        known = {"EXPORT_SCHEMA_VERSION": version, "EXPORT_PRODUCT_VERSION": _TOOLS[version]}
        for number, name in enumerate(("MAJOR", "MINOR", "MICRO")):
            known[f"EXPORT_SCHEMA_VERSION_{name}"] = str(major[number])
        for name, value in known.items():
            db.execute(f"UPDATE {meta} SET value = ? WHERE name = ?", (value, name))


def _sync_types(db: sqlite3.Connection, types: tuple[int, int, int, int]) -> None:
    """A stream wait names a stream and an event, the others one of them or none."""
    none = 0xFFFFFFFF
    named = f"streamId NOT IN (-1, {none})", f"eventId NOT IN (-1, 0, {none})"
    event, wait, stream, context = types
    db.execute(
        f"UPDATE {_SYNC} SET syncType = CASE WHEN {named[0]} AND {named[1]} THEN {wait} WHEN {named[0]} THEN {stream} "
        f"WHEN {named[1]} THEN {event} ELSE {context} END"
    )


def parquet(path: Path, folder: Path) -> Path:
    """The export as a directory of parquet files, one per table, as `nsys export --type parquetdir` writes it."""
    folder.mkdir()
    with closing(sqlite3.connect(path)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            info = db.execute(f"PRAGMA table_info({table})").fetchall()
            rows = db.execute(f"SELECT * FROM {table}").fetchall()
            types = {"INTEGER": pl.Int64, "REAL": pl.Float64, "TEXT": pl.String}
            schema = {c[1]: pl.Binary if c[1] == "binaryData" else types[c[2]] for c in info}
            pl.DataFrame(rows, schema=schema, orient="row").write_parquet(folder / f"{table}.parquet")
    return folder
