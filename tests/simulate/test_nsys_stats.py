"""The real `nsys` reads our file, complains of nothing, and adds up to what the trace says."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from tiny_trace import CHUNK, label, tiny

from stepscope.simulate.nsys import write as write_nsys
from stepscope.simulate.trace.trace import KERNEL, SimTrace

pytestmark = pytest.mark.skipif(shutil.which("nsys") is None, reason="nsys is not installed")


@pytest.fixture(scope="module")
def trace() -> SimTrace:
    found = tiny()
    # The CSV of nsys does not double the quotes inside a name.
    found.names = [name.replace('"', "") for name in found.names]
    return found


@pytest.fixture(scope="module")
def exported(trace: SimTrace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nsys") / "node0.sqlite"
    write_nsys.write(trace, 0, path)
    return path


def stats(path: Path, report: str) -> list[dict[str, str]]:
    command = ["nsys", "stats", "--quiet", "--report", report, "--format", "csv", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    text = done.stdout + done.stderr
    assert not any(word in text for word in ("SKIPPED", "ERROR", "WARNING", "Traceback")), text
    return list(csv.DictReader(io.StringIO(done.stdout.strip())))


def totals(rows: list[dict[str, str]], key: str, value: str, count: str) -> dict[str, tuple[int, int]]:
    return {row[key]: (int(row[value]), int(row[count])) for row in rows}


def expected(names: list[str], index: np.ndarray, start: np.ndarray, end: np.ndarray) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for i, length in zip(index.tolist(), (end - start).tolist(), strict=True):
        total, count = found[names[i]]
        found[names[i]] = (total + length, count + 1)
    return dict(found)


@pytest.mark.slow
def test_sums_of_kernels_calls_and_copies(trace: SimTrace, exported: Path) -> None:
    ops, calls = trace.ops, trace.calls
    at = (ops.kind == KERNEL) & (ops.rank < 2)
    kernels = expected(trace.names, ops.name[at], ops.start[at], ops.end[at])
    assert totals(stats(exported, "cuda_gpu_kern_sum"), "Name", "Total Time (ns)", "Instances") == kernels
    mine = calls.rank < 2
    api = expected(trace.names, calls.name[mine], calls.start[mine], calls.end[mine])
    assert totals(stats(exported, "cuda_api_sum"), "Name", "Total Time (ns)", "Num Calls") == api
    copies = totals(stats(exported, "cuda_gpu_mem_time_sum"), "Operation", "Total Time (ns)", "Count")
    assert sorted(copies.values()) == [(20, 2), (998, 2)]


@pytest.mark.slow
def test_sums_of_ranges(trace: SimTrace, exported: Path) -> None:
    ranges = trace.ranges
    mine = ranges.rank < 2
    names = [f"NCCL:{n}" if n.startswith("nccl") else n for n in trace.names]
    want = expected(names, ranges.name[mine], ranges.start[mine], ranges.end[mine])
    want |= {label(r): (14_345, 1) for r in range(2)}
    found = totals(stats(exported, "nvtx_sum"), "Range", "Total Time (ns)", "Instances")
    # Version 2023.4 writes ranges of the default domain as `:name` in this report.
    assert {name.removeprefix(":"): value for name, value in found.items()} == want


@pytest.mark.slow
def test_ranges_find_their_kernels(trace: SimTrace, exported: Path) -> None:
    projected = {row["Range"]: row for row in stats(exported, "nvtx_gpu_proj_sum")}
    chunk = projected[CHUNK]
    # All six ops of each rank, from the first kernel to the memset.
    assert (int(chunk["Total GPU Ops"]), int(chunk["Total Proj Time (ns)"])) == (12, 2 * 7_610)
    assert int(projected["NCCL:ncclAlltoAll"]["Total Proj Time (ns)"]) == 2 * 2_332
    by_range = defaultdict(int)
    for row in stats(exported, "nvtx_kern_sum"):
        by_range[row["NVTX Range"]] += int(row["Total Time (ns)"])
    assert by_range["layer00.stage1_f"] == 2 * 4_001
    assert by_range["NCCL:ncclGroupEnd"] == 2 * 700


@pytest.mark.slow
def test_traces_list_every_row(trace: SimTrace, exported: Path) -> None:
    gpu = stats(exported, "cuda_gpu_trace")
    at = trace.ops.rank < 2
    assert sorted(int(r["Start (ns)"]) for r in gpu) == sorted(trace.ops.start[at].tolist())
    launches = stats(exported, "cuda_kern_exec_sum")
    assert sum(int(r["Count"]) for r in launches) == 8
    pushed = stats(exported, "nvtx_pushpop_trace")
    assert len(pushed) == np.count_nonzero(trace.ranges.rank < 2) + 2
    assert {r["Lvl"] for r in pushed if r["Name"] == CHUNK} == {"1"}


@pytest.mark.slow
def test_every_rule_runs(exported: Path) -> None:
    rules = "cuda_memcpy_async,cuda_memcpy_sync,cuda_memset_sync,cuda_api_sync,gpu_gaps,gpu_time_util"
    command = ["nsys", "analyze", "--quiet", "--rule", rules, str(exported)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    text = done.stdout + done.stderr
    assert not any(word in text for word in ("SKIPPED", "ERROR", "WARNING", "Traceback")), text
    assert text.count("** ") == 6
