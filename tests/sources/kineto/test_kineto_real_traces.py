"""Every real trace opens, and agrees with a plain reading of its JSON and with the golden unions."""

from __future__ import annotations

import csv
import gzip
import json
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from marks import slow_unless
from stepscope.errors import BadInput
from stepscope.sources.kineto import looks_like_kineto, open_kineto
from stepscope.sources.kineto.source import KinetoSource

SHARED = Path(__file__).resolve().parents[4] / "shared" / "traces"
#: Every trace there is beside the repository, but for the one that is not JSON.
TRACES = sorted(str(p.relative_to(SHARED)) for p in SHARED.rglob("*.json*") if p.name != "invalid_json.json.gz") or [
    "none"
]
FOUR = [f"h200/moe4/overlapped.rank{r}.pt.trace.json.gz" for r in range(4)]
TABLE = {
    "kernel": "ops",
    "gpu_memcpy": "ops",
    "memcpy": "ops",
    "gpu_memset": "ops",
    "memset": "ops",
    "cuda_runtime": "calls",
    "cuda_driver": "calls",
    "runtime": "calls",
    "operator": "host",
    "user_annotation": "ranges",
    "cpu_op": "host",
    "python_function": "host",
    "overhead": "host",
}


@lru_cache(maxsize=1)
def plain(path: Path) -> list[dict[str, Any]]:
    """Complete events with a table, read with the standard library and exact decimals."""
    raw = path.read_bytes()
    trace = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw, parse_float=Decimal)
    return [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"].lower() in TABLE]


def interval(event: dict[str, Any]) -> tuple[int, int]:
    ts, dur = Decimal(event["ts"]), Decimal(event["dur"])
    return round(ts * 1000), round((ts + dur) * 1000)


@lru_cache(maxsize=1)
def opened(path: Path) -> KinetoSource:
    return open_kineto(path)


def small(name: str) -> bool:
    """A plain reading of a large one takes seconds."""
    return name == "none" or (SHARED / name).stat().st_size < 500_000


@pytest.fixture(
    params=slow_unless(small, TRACES),
    ids=lambda name: Path(name).name.removesuffix(".gz").removesuffix(".json"),
    scope="module",
)
def path(request: pytest.FixtureRequest, shared: Path) -> Path:
    return shared / "traces" / request.param


def _table(event: dict[str, Any]) -> str:
    """Torch's annotations of steps, batches and optimizers are ranges in any category."""
    own = ("ProfilerStep#", "enumerate(DataLoader)#", "Optimizer.")
    return "ranges" if event["name"].startswith(own) else TABLE[event["cat"].lower()]


def test_times_and_names_are_those_of_the_json(path: Path) -> None:
    assert looks_like_kineto(path)
    source = opened(path)
    for table in ("ops", "calls", "ranges", "host"):
        chunk = source.read(table)
        expected = sorted((*interval(e), _name(e)) for e in plain(path) if _table(e) == table)
        texts = chunk.names.to_list()
        name = "raw_name" if table == "calls" else "name"
        found = sorted((a, b, texts[n]) for a, b, n in chunk.frame.select("start_ns", "end_ns", name).iter_rows())
        assert found == expected
        assert (table in source.tables()) == bool(expected)


def test_ops_and_calls_link_as_in_the_json(path: Path) -> None:
    source = opened(path)
    for table in ("ops", "calls"):
        wanted = [e for e in plain(path) if TABLE[e["cat"].lower()] == table]
        expected = sorted((interval(e)[0], e["args"]["correlation"]) for e in wanted)
        assert sorted(source.read(table).frame.select("start_ns", "correlation").iter_rows()) == expected
    detail = source.read("ops").frame.hstack(source.read("ops", "detail").frame.select("registers", "grid_x"))
    expected_ops = sorted(
        (
            interval(e)[0],
            e["args"]["device"],
            e["args"]["stream"],
            e["args"].get("registers per thread", -1),
            e["args"].get("grid", [-1])[0],
            e["args"].get("bytes", -1),
        )
        for e in plain(path)
        if TABLE[e["cat"].lower()] == "ops"
    )
    columns = ["start_ns", "device", "stream", "registers", "grid_x", "bytes"]
    assert sorted(detail.select(pl.col(columns).fill_null(-1)).iter_rows()) == expected_ops


def test_golden_unions(path: Path, shared: Path) -> None:
    with (shared / "golden" / "exact-unions.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if r["file"] == path.name and _same_set(r["trace_set"], path)]
    if not rows:
        pytest.skip("no golden figures of this trace")
    (golden,) = rows
    chunk = opened(path).read("ops")
    ops = chunk.frame.with_columns(pl.Series("text", chunk.names).gather(chunk.frame["name"]).alias("text"))
    comm = (pl.col("kind") == "kernel") & pl.col("text").str.contains("(?i)nccl|rccl")
    figures = {
        "window_us": ops["end_ns"].max() - ops["start_ns"].min(),  # type: ignore[operator]
        "busy_us": union(ops),
        "compute_us": union(ops.filter((pl.col("kind") == "kernel") & ~comm)),
        "comm_us": union(ops.filter(comm)),
        "memcpy_us": union(ops.filter(pl.col("kind") == "memcpy")),
        "memset_us": union(ops.filter(pl.col("kind") == "memset")),
    }
    assert ops.height == int(golden["gpu_events"])
    assert figures == {k: round(Decimal(golden[k]) * 1000) for k in figures}


def test_invalid_json_is_refused(shared: Path) -> None:
    bad = shared / "traces" / "public" / "invalid_json.json.gz"
    assert looks_like_kineto(bad)
    with pytest.raises(BadInput, match="at byte 6"):
        open_kineto(bad).processes()


def test_ranks_of_the_four_process_job(shared: Path) -> None:
    found = pl.concat(open_kineto(shared / "traces" / t).processes() for t in FOUR)
    assert found["rank"].to_list() == [0, 1, 2, 3]
    assert found["rank_from"].unique().to_list() == ["distributedInfo"]
    assert found["pid"].to_list() == [1593, 1594, 1595, 1596]
    assert found["gpu"].unique().to_list() == ["NVIDIA H200"]
    assert found["world_size"].unique().to_list() == [4]


def test_merged_ranks_come_apart(shared: Path) -> None:
    source = open_kineto(shared / "traces" / "public" / "mi300x_4ranks_merged_nccl.json.gz")
    assert source.processes()["rank"].to_list() == [0, 1, 2, 3]
    assert source.processes()["world_size"].to_list() == [4, 4, 4, 4]
    assert source.read("ops").frame["proc"].value_counts().sort("proc")["count"].to_list() == [21, 21, 21, 21]
    comms = source.read("comms")
    assert comms.names.gather(comms.frame["communicator"]).unique().to_list() == ["0 [0, 1, 2, 3]"]
    assert comms.frame["comm_rank"].to_list() == comms.frame["proc"].to_list()


def test_collectives_of_the_four_process_job(shared: Path) -> None:
    """64 all-to-alls and one all-reduce carry metadata on the kernel; 8 sends and 8 receives on the host only."""
    texts: dict[str, set[str]] = {}
    for rank in range(4):
        chunk = open_kineto(shared / "traces" / FOUR[rank]).read("comms")
        frame = chunk.frame.with_columns(
            chunk.names.gather(chunk.frame[c]).alias(c) for c in ("op", "communicator", "members")
        )
        on_kernel = frame.filter(pl.col("correlation").is_not_null())
        assert on_kernel["op"].value_counts().sort("op").rows() == [("all_to_allv", 64), ("allreduce", 1)]
        host = frame.filter(pl.col("correlation").is_null())
        assert host["op"].value_counts().sort("op").rows() == [
            ("all_to_allv", 64),
            ("allreduce", 1),
            ("recv", 8),
            ("send", 8),
        ]
        assert frame["bytes"].unique().to_list() == [2048 * 1536 * 2]
        assert host.filter(pl.col("op") == "send")["peer"].unique().to_list() == [(rank + 2) % 4]
        assert host.filter(pl.col("depth") > 0)["op"].unique().sort().to_list() == ["recv", "send"]
        world = frame.filter(pl.col("op") == "allreduce")
        assert world["comm_rank"].unique().to_list() == [rank]
        for members, communicator in frame.select("members", "communicator").iter_rows():
            texts.setdefault(members, set()).add(communicator)
    assert texts == {"[0, 1, 2, 3]": {"0 [0, 1, 2, 3]"}, "[0, 1]": {"1 [0, 1]"}, "[2, 3]": {"2 [2, 3]"}}


def union(ops: pl.DataFrame) -> int:
    """Length of the union of the rows' intervals."""
    ops = ops.sort("start_ns")
    start, end = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    if not len(start):
        return 0
    reach = np.maximum.accumulate(np.concatenate([[start[0]], end[:-1]]))
    return int(np.maximum(end - np.maximum(start, reach), 0).sum())


def _name(event: dict[str, Any]) -> str:
    name = str(event["name"])
    if name.startswith("Memcpy "):
        return f"[memcpy {name.split()[1]}]"
    return "[memset]" if name.startswith("Memset ") else name


def _same_set(trace_set: str, path: Path) -> bool:
    """Both sets of the four-process job have files of the same names."""
    return not trace_set.startswith("h200_moe4") or trace_set == f"h200_{path.parent.name}_overlapped"
