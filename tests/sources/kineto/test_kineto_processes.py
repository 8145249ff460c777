"""Ranks and processes: one per file, or several merged into one file by one convention or another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kineto_files import event, kernel, rows, source

DEVICES = [{"id": 0, "name": "GPU A"}, {"id": 1, "name": "GPU B"}]


def process_name(pid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}


def test_one_process(tmp_path: Path) -> None:
    events = [
        event("cuda_runtime", "cudaLaunchKernel", 1, pid=123, correlation=1),
        event("python_function", "bootstrap", 0, pid=0, tid=0),
        event("overhead", "Buffer", 0, pid=-1),
        kernel("k", 2, device=1),
    ]
    found = source(
        tmp_path,
        events,
        distributedInfo={"rank": 5, "world_size": 8},
        deviceProperties=DEVICES,
        cupti_version=22,
    )
    assert found.processes().to_dicts() == [
        {
            "proc": 0,
            "pid": 123,
            "host": None,
            "device": 1,
            "gpu": "GPU B",
            "gpu_id": None,
            "rank": 5,
            "rank_from": "distributedInfo",
            "setup": None,
            "world_size": 8,
            "devices": None,
        }
    ]
    assert (found.info.format, found.info.tool, found.info.schema) == ("kineto", "CUPTI 22", "1")
    assert {r["proc"] for r in rows(found, "host")} == {0}


def test_the_setup_label_wins(tmp_path: Path) -> None:
    label = "rank=3; pp=1/2 dp=0/1 cp=0/1 ep=1/2; mbs=1 seq=2048"
    events = [event("user_annotation", "step", 0), event("user_annotation", label, 1)]
    (row,) = source(tmp_path, events, distributedInfo={"rank": 5}).processes().to_dicts()
    assert (row["rank"], row["rank_from"], row["setup"]) == (3, "setup label", label)


def test_unknown_rank_and_device(tmp_path: Path) -> None:
    """ROCm counts devices from another number than the properties do: one name for all will do."""
    (row,) = source(tmp_path, [kernel("k", 1, device=2)], deviceProperties=DEVICES[:1]).processes().to_dicts()
    assert (row["rank"], row["rank_from"], row["pid"], row["device"], row["gpu"]) == (None, None, None, 2, "GPU A")
    (row,) = source(tmp_path, [kernel("k", 1, device=2)], deviceProperties=DEVICES).processes().to_dicts()
    assert row["gpu"] is None


def test_merged_by_an_argument(tmp_path: Path) -> None:
    """All ranks may have the same pid and the same correlation ids."""
    events = [
        e
        for rank in (1, 0)
        for e in (
            event("cuda_runtime", "launch", 1, pid=9, correlation=1, rank=rank),
            kernel(f"k{rank}", 2, correlation=1, rank=rank),
        )
    ]
    found = source(tmp_path, events)
    processes = found.processes()
    assert processes["rank"].to_list() == [0, 1]
    assert processes["rank_from"].to_list() == ["args.rank"] * 2
    assert processes["pid"].to_list() == [9, 9]
    assert [(r["proc"], r["name"]) for r in rows(found, "ops")] == [(0, "k0"), (1, "k1")]


def test_merged_by_an_argument_on_some_rows(tmp_path: Path) -> None:
    events = [
        event("cpu_op", "a", 1, pid=10, rank=0),
        event("cpu_op", "b", 2, pid=20, rank=1),
        event("cpu_op", "c", 3, pid=20),
        event("cpu_op", "d", 4, pid=30),
    ]
    found = source(tmp_path, events)
    assert [(r["proc"], r["name"]) for r in rows(found, "host")] == [(0, "a"), (1, "b"), (1, "c")]
    assert found.quality.notes == ["1 host belong to no known rank of this merged file: left out"]


def test_merged_by_process_names(tmp_path: Path) -> None:
    events = [
        process_name(100, "rank 0 - python"),
        process_name(1, "rank 0 - GPU"),
        process_name(200, "Rank_1 python"),
        process_name(2, "RANK 1 GPU 0"),
        event("cuda_runtime", "launch", 1, pid=100, correlation=1),
        event("cuda_runtime", "launch", 1, pid=200, correlation=1),
        {**kernel("k0", 2), "pid": 1},
        {**kernel("k1", 2), "pid": 2},
    ]
    found = source(tmp_path, events)
    assert found.processes().select("pid", "rank").rows() == [(100, 0), (200, 1)]
    assert [(r["proc"], r["name"]) for r in rows(found, "ops")] == [(0, "k0"), (1, "k1")]


def test_one_rank_in_a_process_name_is_no_merged_file(tmp_path: Path) -> None:
    events = [process_name(100, "trainer rank 7"), event("cpu_op", "a", 1, pid=100)]
    assert source(tmp_path, events, distributedInfo={"rank": 2}).processes()["rank"].to_list() == [2]


def test_several_processes_without_names(tmp_path: Path) -> None:
    """GPU rows go to the process that launched them before they ran."""
    events = [
        event("cuda_runtime", "launch", 10, pid=100, correlation=1),
        event("cuda_runtime", "launch", 20, pid=100, correlation=2),
        event("cuda_runtime", "launch", 15, pid=200, correlation=3),
        {**kernel("a", 12, correlation=1), "pid": 0},
        {**kernel("b", 22, correlation=2), "pid": 0},
        {**kernel("c", 22, correlation=3), "pid": 1},
    ]
    found = source(tmp_path, events)
    assert found.processes().select("pid", "rank").rows() == [(100, None), (200, None)]
    assert [(r["proc"], r["name"]) for r in rows(found, "ops")] == [(0, "a"), (0, "b"), (1, "c")]


@pytest.mark.parametrize(
    ("name", "units", "shared"),
    [
        ("NVIDIA H200", 132, False),
        ("NVIDIA H200", 32, True),  # a quarter by MPS
        ("NVIDIA H200 MIG 1g.18gb", 16, False),  # a GPU of its own
        ("GPU A", 8, False),
        ("NVIDIA H200", None, False),
    ],
)
def test_a_part_of_a_gpu_is_shared(tmp_path: Path, name: str, units: int | None, shared: bool) -> None:
    devices = [{"id": 0, "name": name, "numSms": units}]
    (row,) = source(tmp_path, [kernel("k", 1, device=0)], deviceProperties=devices).processes().to_dicts()
    assert row["gpu_id"] == (0 if shared else None)
