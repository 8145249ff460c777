"""Collectives: metadata on kernels and host ops, and what can be had where torch wrote none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kineto_files import event, kernel, rows, source

from stepscope.sources.kineto.comms import element_size


def metadata(op: str, **more: Any) -> dict[str, Any]:
    return {
        "Collective name": op,
        "In msg nelems": 10,
        "Out msg nelems": 40,
        "Group size": 4,
        "dtype": "BFloat16",
        "Process Group Name": "3",
        "Process Group Description": "ep",
        "Process Group Ranks": "[2, 3, 6, 7]",
        **more,
    }


def record(ts: float, op: str | None, dur: float = 5, **more: Any) -> dict[str, Any]:
    return event("cpu_op", "record_param_comms", ts, dur, **(metadata(op, **more) if op else more))


def test_a_kernel(tmp_path: Path) -> None:
    events = [
        kernel("ncclDevKernel_AllGather", 1, 3, correlation=5, **metadata("_allgather_base", Seq=17)),
        kernel("k", 9),
    ]
    found = source(tmp_path, events, distributedInfo={"rank": 6})
    (row,) = rows(found, "comms")
    assert row == {
        "proc": 0,
        "tid": None,
        "start_ns": 1000,
        "end_ns": 4000,
        "correlation": 5,
        "op": "_allgather_base",
        "communicator": "3 [2, 3, 6, 7]",
        "bytes": 80,
        "peer": None,
        "comm_rank": 2,
        "comm_size": 4,
        "members": "[2, 3, 6, 7]",
        "group_name": "ep",
        "depth": 0,
    }
    (detail,) = rows(found, "comms", detail=True)
    assert (detail["in_elements"], detail["out_elements"], detail["dtype"], detail["sequence"]) == (
        10,
        40,
        "BFloat16",
        17,
    )


@pytest.mark.parametrize(
    ("op", "expected"), [("allreduce", 80), ("reduce_scatter", 80), ("all_to_allv", 20), ("alltoall_base", 20)]
)
def test_bytes(tmp_path: Path, op: str, expected: int) -> None:
    """The larger side counts, but of an all-to-all the input."""
    assert rows(source(tmp_path, [record(1, op)]), "comms")[0]["bytes"] == expected


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("Float", 4), ("c10::Half", 2), ("long", 8), ("Float8_e4m3fn", 1), ("signed char", 1), ("Made up", None)],
)
def test_element_sizes(dtype: str, size: int | None) -> None:
    assert element_size(dtype) == size


def test_peers_and_roots(tmp_path: Path) -> None:
    """For point-to-point and rooted operations torch's `Rank` is the partner, else it is the own one."""
    found = source(
        tmp_path,
        [
            record(1, "send", Rank=3, **{"Dst Rank": 3}),
            record(11, "recv", Rank=1, **{"Src Rank": 1}),
            record(21, "broadcast", Rank=2),
            record(31, "allreduce", Rank=0),
        ],
    )
    assert [(r["peer"], r["comm_rank"]) for r in rows(found, "comms")] == [(3, None), (1, None), (2, None), (None, 0)]


def test_waits_are_no_operations(tmp_path: Path) -> None:
    assert "comms" not in source(tmp_path, [record(1, "wait"), record(9, "init"), record(20, None)]).tables()


def test_operations_inside_a_group(tmp_path: Path) -> None:
    """They have no annotation of their own; the group's end has, and launches."""
    found = source(
        tmp_path,
        [
            record(1, "send", Rank=1),
            record(11, "recv", Rank=1),
            event("user_annotation", "nccl:coalesced", 18),
            record(21, "allreduce"),
            event("user_annotation", "nccl:all_reduce", 22),
        ],
    )
    assert [(r["op"], r["depth"]) for r in rows(found, "comms")] == [("send", 1), ("recv", 1), ("allreduce", 0)]


def test_old_records_are_completed_from_annotations(tmp_path: Path) -> None:
    def annotation(name: str, ts: float, shape: list[list[int]], types: list[str], tid: int = 7) -> dict[str, Any]:
        return event("user_annotation", name, ts, tid=tid, **{"Input Dims": shape, "Input type": types})

    found = source(
        tmp_path,
        [
            record(1, None),
            annotation("nccl:all_reduce", 2, [[3, 5]], ["float"]),
            record(11, None, dur=1),  # nothing inside
            annotation("nccl:_all_gather_base", 13, [[100]], ["signed char"]),  # in no record
            record(21, None),
            annotation("nccl:send 0->2", 22, [[4]], ["c10::BFloat16"]),
            record(31, None),
            annotation("nccl:all_to_all", 32, [[4]], ["float"], tid=8),  # of another thread
        ],
    )
    assert [(r["op"], r["bytes"], r["peer"], r["start_ns"]) for r in rows(found, "comms")] == [
        ("all_reduce", 60, None, 1000),
        ("_all_gather_base", 100, None, 13000),
        ("send", 8, 2, 21000),
        ("all_to_all", 16, None, 32000),
    ]


def test_members_that_torch_cut_short(tmp_path: Path) -> None:
    """Host records have start and stride; kernels of the same group get the members from there."""
    cut = {"Process Group Ranks": "[0, 2, 4, ...]", "Group size": 5}
    found = source(
        tmp_path,
        [
            record(1, "allreduce", **cut, **{"Global rank start": 0, "Global rank stride": 2}),
            kernel("nccl", 3, **metadata("allreduce", **cut)),
        ],
    )
    assert {r["communicator"] for r in rows(found, "comms")} == {"3 [0, 2, 4, 6, 8]"}


def test_members_from_the_configuration(tmp_path: Path) -> None:
    groups = {"rank": 1, "pg_config": [{"pg_name": "3", "ranks": [1, 5]}, "odd"]}
    events = [record(1, "allreduce", **{"Process Group Ranks": "[]"})]
    (row,) = rows(source(tmp_path, events, distributedInfo=groups), "comms")
    assert (row["members"], row["communicator"], row["comm_rank"]) == ("[1, 5]", "3 [1, 5]", 0)


def test_nothing_known_of_the_group(tmp_path: Path) -> None:
    events = [kernel("nccl", 1, **{"Collective name": "allreduce", "Process Group Description": "undefined"})]
    (row,) = rows(source(tmp_path, events), "comms")
    assert (row["communicator"], row["members"], row["group_name"], row["bytes"]) == (None, None, None, None)
