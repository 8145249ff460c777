"""What the nsys writer writes, read back with SQLite alone."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_trace import CHUNK, EP_ID, EPOCHS, GEMM, WORLD_ID, label, table, tiny

from stepscope.simulate.nsys import write as write_nsys
from stepscope.simulate.trace.trace import KERNEL, MEMCPY, MEMSET, SimOps, SimTrace

Query = Callable[[str], list[tuple[Any, ...]]]
NONE = 4_294_967_295


def gpid(pid: int) -> int:
    return 1 << 48 | pid << 24


@pytest.fixture
def trace() -> SimTrace:
    return tiny()


@pytest.fixture
def query(trace: SimTrace, tmp_path: Path) -> Query:
    """Runs a query on node 0 of the tiny trace."""
    path = tmp_path / "node0.sqlite"
    write_nsys.write(trace, 0, path)

    def run(sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path)) as db:
            return db.execute(sql).fetchall()

    return run


def rows(trace: SimTrace, kind: int, *columns: str) -> list[tuple[Any, ...]]:
    """Columns of the ops of one kind on node 0, each with its globalPid first."""
    ops = trace.ops
    at = np.flatnonzero((ops.kind == kind) & (ops.rank < 2))
    values = [getattr(ops, c)[at].tolist() for c in columns]
    return list(zip([gpid(300 + r) for r in ops.rank[at].tolist()], *values, strict=True))


def test_gpu_work_comes_back_to_the_nanosecond(trace: SimTrace, query: Query) -> None:
    kernels = query(
        "SELECT globalPid, start, end, streamId, correlationId, value, deviceId FROM CUPTI_ACTIVITY_KIND_KERNEL k "
        "JOIN StringIds ON id = demangledName ORDER BY k.rowid"
    )
    expected = rows(trace, KERNEL, "start", "end", "stream", "correlation", "name", "rank")
    assert kernels == [(p, s, e, st, c, trace.names[n], r) for p, s, e, st, c, n, r in expected]
    copies = query(
        "SELECT globalPid, start, end, streamId, correlationId, bytes, copyKind FROM CUPTI_ACTIVITY_KIND_MEMCPY"
    )
    assert copies == rows(trace, MEMCPY, "start", "end", "stream", "correlation", "bytes", "copy_kind")
    sets = query("SELECT globalPid, start, end, streamId, correlationId, bytes FROM CUPTI_ACTIVITY_KIND_MEMSET")
    assert sets == rows(trace, MEMSET, "start", "end", "stream", "correlation", "bytes")


def test_short_names(query: Query) -> None:
    found = dict(
        query(
            "SELECT d.value, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL "
            "JOIN StringIds d ON d.id = demangledName JOIN StringIds s ON s.id = shortName"
        )
    )
    assert found[GEMM] == "gemm"
    full = "void at::native::(anonymous namespace)::norm_kernel<c10::BFloat16, float>(int)"
    assert write_nsys.short_name(full) == "norm_kernel"
    assert write_nsys.short_name("nvjet_sm90_tst") == "nvjet_sm90_tst"


def test_calls_carry_versions_and_classes(trace: SimTrace, query: Query) -> None:
    found = query(
        "SELECT globalTid, start, end, eventClass, correlationId, value FROM CUPTI_ACTIVITY_KIND_RUNTIME c "
        "JOIN StringIds ON id = nameId ORDER BY c.rowid"
    )
    calls = trace.calls
    assert [f[1:3] for f in found] == [
        (s, e) for r, s, e in zip(calls.rank, calls.start, calls.end, strict=True) if r < 2
    ]
    first = [f for f in found if f[0] == gpid(300) | 300]
    assert [f[4] for f in first] == list(range(11, 22))
    assert (first[0][3], first[0][5]) == (0, "cudaLaunchKernel_v7000")
    assert (first[3][3], first[3][5]) == (1, "cuLaunchKernelEx")
    assert first[-1][5] == "cudaDeviceSynchronize_v3020"


def test_ranges_and_the_setup_label(trace: SimTrace, query: Query) -> None:
    mine = f"globalTid = {gpid(301) | 301}"
    found = query(f"SELECT text, start, end, domainId FROM NVTX_EVENTS WHERE eventType = 59 AND {mine}")
    t = 1_000_010
    # Before the first thing of the rank, until after the last.
    assert found[0] == (label(1), t - 1_000, t + 12_345 + 1_000, 0)
    assert found[1] == (CHUNK, t, t + 9_000, 0)
    nccl = query(
        f"SELECT value, start, end FROM NVTX_EVENTS n JOIN StringIds ON id = textId WHERE domainId = 1 AND {mine}"
    )
    assert nccl[0] == ("ncclAlltoAll", t + 700, t + 1_201)
    assert [n[0] for n in nccl[1:]] == ["ncclGroupStart", "ncclSend", "ncclRecv", "ncclGroupEnd", "ncclAllReduce"]
    domains = query("SELECT text, domainId, start < 0, globalTid FROM NVTX_EVENTS WHERE eventType = 75")
    assert domains == [("NCCL", 1, 1, gpid(300) | 300), ("NCCL", 1, 1, gpid(301) | 301)]


def test_a_setup_label_among_the_ranges_is_not_repeated(trace: SimTrace, tmp_path: Path) -> None:
    trace.names[trace.names.index(CHUNK)] = label(0)
    write_nsys.write(trace, 0, tmp_path / "a.sqlite")
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as db:
        found = db.execute("SELECT globalTid, count(*) FROM NVTX_EVENTS WHERE text = ? GROUP BY 1", (label(0),))
        assert dict(found) == {gpid(300) | 300: 1, gpid(301) | 301: 1}


def decode(query: Query, blob: bytes) -> dict[str, int | str]:
    """A payload by the schema rows of its own file."""
    formats = {5: "<i", 18: "<Q", 22: "<Q"}
    count, schema, size, offset = struct.unpack_from("<4Q", blob)
    assert (count, offset, len(blob)) == (1, 32, 32 + size)
    entries = query(
        "SELECT DISTINCT name, type, ifnull(offset, 0) FROM NVTX_PAYLOAD_SCHEMA_ENTRIES "
        f"WHERE domainId = 1 AND schemaId = {schema} ORDER BY idx"
    )
    enum = dict(query("SELECT DISTINCT ifnull(value, 0), name FROM NVTX_PAYLOAD_ENUM_ENTRIES"))
    found: dict[str, int | str] = {}
    for name, kind, at in entries:
        (value,) = struct.unpack_from(formats.get(kind, "<i"), blob, offset + at)
        found[name] = value if kind in formats else enum[value]
    return found


def test_payloads_say_the_same_as_blob_and_as_json(query: Query) -> None:
    found = query(
        "SELECT value, CAST(binaryData AS BLOB), jsonText, typeof(binaryData) FROM NVTX_EVENTS "
        f"JOIN StringIds ON id = textId WHERE domainId = 1 AND globalTid = {gpid(300) | 300} ORDER BY start"
    )
    expected: dict[str, dict[str, int | str]] = {
        "ncclAlltoAll": {"NCCL communicator ID": EP_ID, "Message size [bytes]": 1_048_576},
        "ncclSend": {"NCCL communicator ID": WORLD_ID, "Message size [bytes]": 6_291_456, "Peer rank": 1},
        "ncclRecv": {"NCCL communicator ID": WORLD_ID, "Message size [bytes]": 6_291_456, "Peer rank": 1},
        "ncclAllReduce": {
            "NCCL communicator ID": WORLD_ID,
            "Message size [bytes]": 4_000,
            "Reduction operation": "Sum",
        },
    }
    assert len(found) == 6
    for name, blob, text, kind in found:
        if name in expected:
            assert kind == "blob"
            assert decode(query, blob) == json.loads(text) == expected[name]
        else:
            assert blob is None and text is None


def test_waits_lead_to_records(query: Query) -> None:
    mine = f"globalPid = {gpid(301)}"
    syncs = query(
        "SELECT correlationId, syncType, streamId, eventSyncId, end - start "
        f"FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION WHERE {mine} ORDER BY start"
    )
    # A stream synchronization has the number of a stream wait in this schema.
    assert syncs == [(13, 2, 21, 0, 2), (19, 2, 7, NONE, 6_000), (20, 1, NONE, 0, 100), (21, 4, NONE, NONE, 1_045)]
    joined = query(
        "SELECT e.streamId, e.correlationId FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION s "
        "JOIN CUPTI_ACTIVITY_KIND_CUDA_EVENT e USING (globalPid, eventSyncId, eventId) WHERE s.correlationId = 13"
    )
    assert joined == [(7, 12), (7, 12)]


def test_the_machine_is_described(query: Query) -> None:
    assert query("SELECT utcEpochNs, utcTime FROM TARGET_INFO_SESSION_START_TIME") == [
        (EPOCHS[0], "2026-11-15T01:54:50")
    ]
    assert query("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname'") == [("node0",)]
    assert query("SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_SCHEMA_VERSION'") == [("3.20.3",)]
    assert query("SELECT gpuId, cudaId, pid FROM TARGET_INFO_CUDA_DEVICE") == [(0, 0, 300), (1, 1, 301)]
    assert query("SELECT streamId, flag FROM TARGET_INFO_CUDA_STREAM WHERE processId = 300") == [
        (7, 3),
        (13, 2),
        (17, 2),
        (21, 2),
    ]
    assert len(query("SELECT DISTINCT uuid, busLocation FROM TARGET_INFO_GPU")) == 2


def test_a_node_has_only_its_own_and_no_empty_tables(trace: SimTrace, tmp_path: Path) -> None:
    write_nsys.write(trace, 1, tmp_path / "node1.sqlite")
    with closing(sqlite3.connect(tmp_path / "node1.sqlite")) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        assert db.execute("SELECT globalPid, start FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall() == [
            (gpid(300), 1_000_017 + 3_000)
        ]
        assert db.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone() == (EPOCHS[1],)
    assert not tables & {"CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "NVTX_PAYLOAD_SCHEMAS"}


def test_same_trace_same_bytes_and_nothing_left_behind(trace: SimTrace, tmp_path: Path) -> None:
    write_nsys.write(trace, 0, tmp_path / "a.sqlite")
    write_nsys.write(tiny(), 0, tmp_path / "b.sqlite")
    assert (tmp_path / "a.sqlite").read_bytes() == (tmp_path / "b.sqlite").read_bytes()
    with pytest.raises(ValueError, match="node 5"):
        write_nsys.write(trace, 5, tmp_path / "a.sqlite")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.sqlite", "b.sqlite"]


def test_rows_may_come_in_any_order_of_ranks(trace: SimTrace, tmp_path: Path) -> None:
    write_nsys.write(trace, 0, tmp_path / "a.sqlite")
    for one in (trace.syncs, trace.events):
        order = np.argsort(-one.rank, kind="stable")
        for field in fields(one):
            setattr(one, field.name, getattr(one, field.name)[order])
    write_nsys.write(trace, 0, tmp_path / "b.sqlite")
    assert (tmp_path / "a.sqlite").read_bytes() == (tmp_path / "b.sqlite").read_bytes()


def test_a_trace_without_gpu_work(trace: SimTrace, tmp_path: Path) -> None:
    trace.ops = table(SimOps, [])
    write_nsys.write(trace, 0, tmp_path / "c.sqlite")
    with closing(sqlite3.connect(tmp_path / "c.sqlite")) as db:
        assert db.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone() == (22,)
