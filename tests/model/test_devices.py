"""One process with several GPUs: each device is a timeline of its own, in every question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stepscope import api
from stepscope.model.devices import several
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

_JOB = {"schedule": "1f1b", "pp": 2, "ep": 1, "dp": 2, "layers": 2, "micro_batches": 2, "steps": 3}
#: Questions whose answer does not rest on the setup labels, which are of processes.
_THE_SAME = (
    *("breakdown", "overlap", "exposed", "idle", "kernels", "launches", "concurrency", "iterations", "run", "streams"),
    *("collectives", "clocks", "critical-path", "timeline", "window", "compute"),
)


@pytest.fixture(scope="module", params=["nsys", "kineto"])
def two(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[api.Profile, api.Profile]:
    """The same job with a process for each GPU, and with one for two."""
    folder = tmp_path_factory.mktemp("devices")
    for each in (1, 2):
        simulate_to(Scenario(**_JOB, gpus_per_process=each), folder / str(each), (request.param,))
    apart, together = (api.open(folder / str(each), cache=False) for each in (1, 2))
    return apart, together


@pytest.mark.parametrize("question", _THE_SAME)
def test_a_device_is_what_a_process_of_its_own_would_be(question: str, two: tuple[api.Profile, api.Profile]) -> None:
    if question == "clocks" and len(two[0].paths) > 1:
        pytest.skip("clocks are of files, and here each process has one")
    apart, together = (api.analyse(profile, question).rows for profile in two)
    names = [c for c in apart.columns if c not in ("pid", "range", "module", "axis")]
    assert apart.height and together.select(names).equals(apart.select(names))


def test_ranks_are_processes_times_devices(two: tuple[api.Profile, api.Profile]) -> None:
    table = two[1].ranks
    assert table["rank"].to_list() == [0, 1, 2, 3] and table["device"].to_list() == [0, 1, 2, 3]
    assert table["pid"].n_unique() == 2
    assert [n for n in two[1].notes if n.code == "several-gpus"]
    assert not [n for n in two[0].notes if n.code == "several-gpus"]


def _event(category: str, name: str, ts: float, dur: float, device: int, correlation: int) -> dict:
    gpu = {"device": device, "stream": 7, "correlation": correlation}
    return {"ph": "X", "cat": category, "name": name, "pid": device, "tid": 7, "ts": ts, "dur": dur, "args": gpu}


def _call(ts: float, correlation: int) -> dict:
    where = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 100, "tid": 100}
    return {**where, "ts": ts, "dur": 5, "args": {"correlation": correlation}}


def _trace(folder: Path, kernels: list[tuple[str, float, float, int]], name: str = "run.pt.trace.json") -> Path:
    """A trace of one thread that drives all devices, as JAX does."""
    events = []
    for number, (kernel, ts, dur, device) in enumerate(kernels, 1):
        events += [_call(ts - 10, number), _event("kernel", kernel, ts, dur, device, number)]
    path = folder / name
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def test_compute_on_one_gpu_hides_nothing_of_another(tmp_path: Path) -> None:
    kernels = [("ncclDevKernel_AllReduce", 1000, 100, 0), ("gemm", 1000, 100, 1), ("gemm", 1200, 50, 0)]
    rows = api.open(_trace(tmp_path, kernels), cache=False).breakdown(whole=True).rows
    figures = rows.select("rank", "window_ns", "compute_ns", "comm_exposed_ns", "comm_hidden_ns", "idle_ns").rows()
    us = 1000
    assert figures == [(0, 250 * us, 50 * us, 100 * us, 0, 100 * us), (1, 100 * us, 100 * us, 0, 0, 0)]


def test_the_host_is_that_of_the_process(tmp_path: Path) -> None:
    """One thread drives both: each device has all calls, and links its own ops to them."""
    profile = api.open(_trace(tmp_path, [("gemm", 1000, 50, 0), ("gemm", 1100, 50, 1)]), cache=False)
    assert [calls.height for _, calls in profile.by_rank("calls")] == [2, 2]
    assert [ops["launch"].to_list() for _, ops in profile.by_rank("ops")] == [[0], [1]]


def test_a_rank_in_the_file_name_is_of_the_process(tmp_path: Path) -> None:
    both = [("gemm", 1000, 50, 0), ("gemm", 1000, 50, 1)]
    files = [_trace(tmp_path, both, f"rank{rank}.pt.trace.json") for rank in (0, 1)]
    table = api.open(*files, cache=False).ranks
    assert table.select("rank", "device").rows() == [(0, 0), (1, 1), (2, 0), (3, 1)]
    assert set(table["rank_from"]) == {"file name, device"}


def test_stray_kernels_make_no_timeline() -> None:
    """Every rank of torch leaves some on GPU 0."""
    counts = pl.DataFrame({"proc": [0, 0, 1, 1], "device": [0, 3, 0, 1], "len": [1, 900, 500, 900]})
    assert several(counts) == {1: "0,1"}
    stray = [("gemm", 1000 + 10 * n, 5, 3) for n in range(200)] + [("fill", 900, 5, 0)]
    assert several(pl.DataFrame({"proc": [0] * 2, "device": [3, 0], "len": [len(stray) - 1, 1]})) == {}
