"""One process with several GPUs: each device is a timeline of its own, in every question."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stepscope import api, questions
from stepscope.cli.main import run
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


#: Steps of a JAX process by its two devices: kernel, when it begins and how long it takes, in us from the step's start.
_JAX = {
    0: [("loop_add_fusion", 100, 300), ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 400, 200)],
    1: [("loop_add_fusion", 100, 500), ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 600, 10)],
}
_JAX_US = {
    "breakdown": ("compute_ns", "comm_exposed_ns", "comm_hidden_ns"),
    "overlap": ("comm_ns", "exposed_ns"),
}


@pytest.fixture(scope="module")
def jax(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An nsys export of one JAX process with two GPUs, as XLA labels its work: a thread for each device."""
    folder = tmp_path_factory.mktemp("jax")
    simulate_to(Scenario(schedule="ddp", pp=1, ep=1, dp=2, layers=1, micro_batches=1, steps=1), folder, ("nsys",))
    path = folder / "node0.sqlite"
    with closing(sqlite3.connect(path)) as db:
        kept = ("META_DATA_EXPORT", "META_DATA_CAPTURE", "TARGET_INFO_GPU", "TARGET_INFO_SYSTEM_ENV")
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            if table not in kept and not table.startswith("ENUM"):
                db.execute(f"DELETE FROM {table}")
        names = {"cudaLaunchKernel_v7000": 1, "loop_add_fusion": 2, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL": 3}
        db.executemany("INSERT INTO StringIds (id, value) VALUES (?, ?)", [(i, name) for name, i in names.items()])
        pid, number = 77, 0
        process = pid << 24
        db.executemany("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (?, ?, ?)", [(d, d, pid) for d in _JAX])
        db.execute("INSERT INTO PROCESSES VALUES (?, ?, 'python')", [process, pid])
        for step in range(3):
            at = 10_000_000 + step * 1_000_000
            _insert(
                db,
                "NVTX_EVENTS",
                start=at,
                end=at + 990_000,
                eventType=59,
                text=f"train {step}",
                globalTid=process | pid,
            )
            for device, kernels in _JAX.items():
                thread = process | (pid + 1 + device)
                for kernel, begins, takes in kernels:
                    number += 1
                    called, ran = at + begins * 100, at + begins * 1000  # launched well ahead
                    thunk = f"Thunk:#name=jit(step)/add,hlo_op={kernel}#"
                    _insert(
                        db,
                        "NVTX_EVENTS",
                        start=called - 500,
                        end=called + 4000,
                        eventType=59,
                        text=thunk,
                        globalTid=thread,
                    )
                    _insert(
                        db,
                        "CUPTI_ACTIVITY_KIND_RUNTIME",
                        start=called,
                        end=called + 3000,
                        globalTid=thread,
                        correlationId=number,
                        nameId=1,
                    )
                    ids = {"demangledName": names[kernel], "shortName": names[kernel], "globalPid": process}
                    _insert(
                        db,
                        "CUPTI_ACTIVITY_KIND_KERNEL",
                        start=ran,
                        end=ran + takes * 1000,
                        deviceId=device,
                        streamId=21 if kernel.startswith("nccl") else 20,
                        correlationId=number,
                        gridX=1,
                        **ids,
                    )
        db.commit()
    return path


def _insert(db: sqlite3.Connection, table: str, **values: Any) -> None:
    """A row; what must be there and is not given is 0."""
    needed = [name for _, name, _, must, _, _ in db.execute(f"PRAGMA table_info({table})") if must]
    row = dict.fromkeys(needed, 0) | values
    db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values()))


def test_devices_of_a_jax_process_in_nsys(jax: Path) -> None:
    """The all-reduce of one GPU runs beside the compute of the other: nothing hides it."""
    profile = api.open(jax, cache=False)
    assert profile.ranks.select("rank", "device", "pid").rows() == [(0, 0, 77), (1, 1, 77)]
    assert [n for n in profile.notes if n.code == "several-gpus"]
    for question, columns in _JAX_US.items():
        rows = api.analyse(profile, question, anchor="^train", index=1).rows.select(*columns).rows()
        us = [tuple(n // 1000 for n in row) for row in rows]
        assert us == ([(300, 200, 0), (500, 10, 0)] if question == "breakdown" else [(200, 200), (10, 10)]), question


@pytest.mark.parametrize("question", questions.names())
def test_every_question_of_a_jax_process(question: str, jax: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By command: it answers for both devices, or says what the profile lacks."""
    status = run([question, str(jax), "--no-cache", "--format", "json"])
    out, err = capsys.readouterr()
    assert status in (0, 3) and "this is a bug" not in err
    if status == 0:
        rows = json.loads(out)["rows"]
        ranks = {row["rank"] for row in rows if "rank" in row}
        assert ranks in (set(), {0, 1}) or (question == "critical-path" and ranks == {1})


def test_the_host_is_that_of_the_process(tmp_path: Path) -> None:
    """One thread drives both: each device has all calls, and links its own ops to them."""
    profile = api.open(_trace(tmp_path, [("gemm", 1000, 50, 0), ("gemm", 1100, 50, 1)]), cache=False)
    assert [calls.height for _, calls in profile.by_rank("calls")] == [2, 2]
    assert [ops["launch"].to_list() for _, ops in profile.by_rank("ops")] == [[0], [1]]


def test_a_rank_in_the_file_name_is_of_the_process(tmp_path: Path) -> None:
    # Ranks differ by some nanoseconds: the same ops in two files would be one capture, given twice.
    files = [
        _trace(tmp_path, [("gemm", 1000 + rank, 50, gpu) for gpu in (0, 1)], f"rank{rank}.pt.trace.json")
        for rank in (0, 1)
    ]
    table = api.open(*files, cache=False).ranks
    assert table.select("rank", "device").rows() == [(0, 0), (1, 1), (2, 0), (3, 1)]
    assert set(table["rank_from"]) == {"file name, device"}


def test_stray_kernels_make_no_timeline() -> None:
    """Every rank of torch leaves some on GPU 0."""
    counts = pl.DataFrame({"proc": [0, 0, 1, 1], "device": [0, 3, 0, 1], "len": [1, 900, 500, 900]})
    assert several(counts) == {1: "0,1"}
    stray = [("gemm", 1000 + 10 * n, 5, 3) for n in range(200)] + [("fill", 900, 5, 0)]
    assert several(pl.DataFrame({"proc": [0] * 2, "device": [3, 0], "len": [len(stray) - 1, 1]})) == {}
