"""Every real trace, against plain SQL on the same file."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from nsys_files import GRAPH, KERNEL, MEMCPY, MEMSET, NVTX, RECORD, RUNTIME, SYNC, texts

from stepscope.model.schema import TABLES
from stepscope.model.source import canonical
from stepscope.sources.nsys import NsysSource, is_sqlite, open_sqlite

TRACES = (
    *(f"h200/moe4/{name}.sqlite" for name in ("overlapped", "serialized")),
    *(f"h200/moe4mps/{name}.sqlite" for name in ("overlapped", "serialized", "cut_off")),
    *(f"h200/train/{name}.sqlite" for name in ("eager", "slow_dataloader")),
    "h200/payloads/overlapped.sqlite",
    *(f"public/h100x2_{name}.sqlite" for name in ("before", "after")),
    *(f"public/a100_{name}.sqlite" for name in ("lm2.7b_nvtx", "cuda_graphs", "saxpy_mpi.rank0", "saxpy_mpi.rank1")),
    *(f"public/{name}.sqlite" for name in ("t4_power_iteration", "rtx5000ada_windows", "titan_no_kernel_table")),
)


class Sql:
    """Plain SQL over one file; nothing for tables that it does not have."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, table: str, query: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro&immutable=1", uri=True)) as db:
            db.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
            there = db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchall()
            return db.execute(query.format(table)).fetchall() if there else []


@pytest.fixture(params=TRACES)
def trace(request: pytest.FixtureRequest, shared: Path) -> tuple[NsysSource, Sql]:
    path = shared / request.param
    assert is_sqlite(path)
    return open_sqlite(path), Sql(path)


def pids(source: NsysSource) -> str:
    return ", ".join(map(str, source.processes()["pid"]))


def by_pid(source: NsysSource, frame: pl.DataFrame) -> dict[int, tuple[int, int, int]]:
    """Rows, sum of starts and of ends, by process."""
    pid = source.processes()["pid"].to_list()
    sums = frame.group_by("proc").agg(pl.len(), pl.col("start_ns").sum(), pl.col("end_ns").sum().alias("end"))
    return {pid[proc]: (n, start, end) for proc, n, start, end in sums.iter_rows()}


def test_ops(trace: tuple[NsysSource, Sql]) -> None:
    source, sql = trace
    expected: Counter[int] = Counter()
    names: Counter[object] = Counter()
    sums: dict[int, list[int]] = {}
    for table in (KERNEL, MEMCPY, MEMSET, GRAPH):
        for pid, n, start, end in sql(
            table, "SELECT (globalPid >> 24) & 16777215, count(*), sum(start), sum(end) FROM {} GROUP BY 1"
        ):
            expected[pid] += n  # type: ignore[index, operator]
            total = sums.setdefault(pid, [0, 0])  # type: ignore[arg-type]
            total[0] += start  # type: ignore[operator]
            total[1] += end  # type: ignore[operator]
    for name, n in sql(KERNEL, "SELECT value, count(*) FROM {} JOIN StringIds ON id = demangledName GROUP BY 1"):
        names[name] += n  # type: ignore[operator]
    frame = texts(source, "ops")
    assert by_pid(source, frame) == {pid: (n, *sums[pid]) for pid, n in expected.items()}
    assert Counter(frame.filter(pl.col("kind") == "kernel")["name"].to_list()) == names
    assert frame.filter(pl.col("kind") == "kernel")["bytes"].null_count() == frame["kind"].to_list().count("kernel")


def test_calls(trace: tuple[NsysSource, Sql]) -> None:
    source, sql = trace
    where = f"WHERE start >= 0 AND ((globalTid >> 24) & 16777215) IN ({pids(source)})"
    rows = sql(
        RUNTIME, f"SELECT (globalTid >> 24) & 16777215, count(*), sum(start), sum(end) FROM {{}} {where} GROUP BY 1"
    )
    assert by_pid(source, source.read("calls").frame) == {pid: (n, a, b) for pid, n, a, b in rows}
    raw = dict(sql(RUNTIME, f"SELECT value, count(*) FROM {{}} JOIN StringIds ON id = nameId {where} GROUP BY 1"))
    frame = texts(source, "calls")
    assert Counter(frame["raw_name"].to_list()) == Counter(raw)
    assert not any(name.endswith(("_v3020", "_v7000", "_ptsz")) for name in frame["name"].unique())


def test_ranges(trace: tuple[NsysSource, Sql]) -> None:
    source, sql = trace
    where = "WHERE eventType IN (59, 60, 34) AND start >= 0"
    rows = sql(
        NVTX,
        "SELECT coalesce(text, value), start, coalesce(end, start), globalTid & 16777215 "
        f"FROM {{}} LEFT JOIN StringIds ON id = textId {where} ORDER BY 2, 3",
    )
    frame = texts(source, "ranges")
    found = frame.select("name", "start_ns", "end_ns", "tid").sort("start_ns", "end_ns").rows()
    assert sorted(found, key=repr) == sorted(rows, key=repr)


def test_syncs(trace: tuple[NsysSource, Sql]) -> None:
    source, sql = trace
    waits = sum(n for (n,) in sql(SYNC, "SELECT count(*) FROM {}"))  # type: ignore[misc]
    records = sum(n for (n,) in sql(RECORD, "SELECT count(*) FROM {}"))  # type: ignore[misc]
    frame = source.read("syncs").frame
    assert frame.height == waits + records
    polls = sql(
        SYNC,
        f"SELECT count(*) FROM {{}} s JOIN {RUNTIME} r ON r.correlationId = s.correlationId AND "
        "(r.globalTid >> 24) = (s.globalPid >> 24) JOIN StringIds ON id = nameId WHERE value LIKE 'cudaEventQuery%'",
    )
    assert frame["kind"].to_list().count("event_query") == sum(n for (n,) in polls)  # type: ignore[misc]
    assert "unknown" not in frame["kind"].to_list()


def test_every_part_has_its_schema_and_one_order(trace: tuple[NsysSource, Sql]) -> None:
    source, _ = trace
    for table, spec in TABLES.items():
        core, detail = source.read(table).frame, source.read(table, "detail").frame
        assert dict(core.schema) == spec.part("core")
        assert dict(detail.schema) == spec.part("detail")
        keys = ["proc", *spec.keys]
        assert core.select(keys).equals(detail.select(keys))
        launch = source.read(table, "launch").frame
        assert dict(launch.schema) == spec.part("launch")
        assert launch.equals(detail.select(launch.columns))
        assert core.equals(canonical(core, table))
        assert core["proc"].null_count() == 0
        assert (core.height > 0) == (table in source.tables())


def test_info(trace: tuple[NsysSource, Sql]) -> None:
    source, sql = trace
    meta = {
        **dict(sql("META_DATA_EXPORT", "SELECT name, value FROM {}")),
        **dict(sql("EXPORT_META_DATA", "SELECT name, value FROM {}")),
    }
    assert source.info.schema == meta["EXPORT_SCHEMA_VERSION"]
    assert source.info.tool == meta["EXPORT_PRODUCT_VERSION"]
    assert [(source.info.epoch_ns,)] == sql("TARGET_INFO_SESSION_START_TIME", "SELECT utcEpochNs FROM {}")
    assert [(source.info.capture_ns,)] == sql("ANALYSIS_DETAILS", "SELECT duration FROM {}")
    hosts = [str(h) for h in source.processes()["host"].unique() if h is not None and len(h) > 3]
    assert not any(host in note for note in source.quality.notes for host in hosts)


def test_ranks_of_the_labelled_traces(shared: Path) -> None:
    processes = open_sqlite(shared / "h200/moe4/overlapped.sqlite").processes()
    assert processes["rank"].to_list() == [0, 1, 2, 3]
    assert processes["rank_from"].unique().to_list() == ["setup label"]
    assert processes["gpu"].unique().to_list() == ["NVIDIA H200"]
    assert processes["setup"][0] == "rank=0; pp=0/2 dp=0/1 cp=0/1 ep=0/2; mbs=1 seq=2048"


def test_the_gpu_of_a_windows_laptop_is_not_its_intel_one(shared: Path) -> None:
    processes = open_sqlite(shared / "public/rtx5000ada_windows.sqlite").processes()
    assert processes["gpu"].to_list() == ["NVIDIA RTX 5000 Ada Generation Laptop GPU"]


def test_a_launcher_that_only_asks_for_devices_is_no_rank(shared: Path) -> None:
    source = open_sqlite(shared / "h200/payloads/overlapped.sqlite")
    assert 446 not in source.processes()["pid"].to_list()
    source.read("calls")
    assert "CUPTI_ACTIVITY_KIND_RUNTIME: left out 1 row of processes that are not ranks" in source.quality.notes


def test_graphs_are_operations(shared: Path) -> None:
    frame = texts(open_sqlite(shared / "public/a100_cuda_graphs.sqlite"), "ops")
    assert Counter(frame["kind"].to_list()) == {"kernel": 30, "graph": 10}
    assert frame.filter(pl.col("kind") == "graph")["name"].unique().to_list() == ["[graph 4]"]


def test_unclosed_ranges_of_a_cut_capture(shared: Path) -> None:
    source = open_sqlite(shared / "public/titan_no_kernel_table.sqlite")
    frame = source.read("ranges").frame
    unclosed = frame.filter(~pl.col("closed"))
    assert unclosed.height > 0
    assert unclosed["end_ns"].unique().to_list() == [source.info.capture_ns]
    assert source.tables() == {"ranges"}


def test_records_and_waits_share_their_event(shared: Path) -> None:
    frame = open_sqlite(shared / "h200/moe4/overlapped.sqlite").read("syncs").frame
    records = frame.filter(pl.col("kind") == "record")
    waits = frame.filter(pl.col("kind") == "stream_wait")
    assert waits.height == 1456
    assert records.select("proc", "event").is_unique().all()
    assert waits.join(records, on=["proc", "event"], how="semi").height == 1456
