"""Kernels and the calls behind them: own calls, groups, several communicators in one group, and what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from fake import call, comm, make, op
from stepscope.derive.comm.calls import operations, sides_of
from stepscope.derive.comm.kinds import kinds
from stepscope.derive.rank.data import ranks_of


def nccl(start: int, end: int, name: str, comm: str | None = None, depth: int = 0, **more: Any) -> dict[str, Any]:
    return {"start_ns": start, "end_ns": end, "tid": 1, "op": name, "communicator": comm, "depth": depth, **more}


def sides(**tables: Any) -> list[dict[str, Any]]:
    profile = make(**tables)
    columns = ("op", "communicator", "kind", "bytes", "parted", "seq", "send", "peer", "known_by")
    return sides_of(profile, next(iter(ranks_of(profile)))).select(columns).to_dicts()


def test_a_call_of_its_own():
    (found,) = sides(
        ops=[op(50, 90, "ncclDevKernel_AllGather_RING", 9, call=1)],
        calls=[call(12, 14, id=1)],
        comms=[nccl(10, 20, "ncclAllGather", "0xa", bytes=100)],
    )
    assert (found["communicator"], found["kind"], found["bytes"], found["parted"]) == ("0xa", "all_gather", 100, True)
    assert found["seq"] == 0 and found["known_by"] == "payload"


def group(at: int, *inner: dict[str, Any]) -> list[dict[str, Any]]:
    """A group from `at` on; its end, at + 50, launches."""
    return [nccl(at, at + 1, "ncclGroupStart"), *inner, nccl(at + 50, at + 60, "ncclGroupEnd")]


def test_a_group_launches_one_kernel_at_its_end_with_all_its_transfers():
    rows = sides(
        ops=[comm(100, 200, call=1)],
        calls=[call(55, 57, id=1)],
        comms=group(
            0,
            nccl(5, 6, "ncclSend", "0xa", 1, bytes=8, peer=3),
            nccl(7, 8, "ncclRecv", "0xa", 1, bytes=16, peer=2),
        ),
    )
    assert [(r["kind"], r["send"], r["peer"], r["bytes"]) for r in rows] == [
        ("send_recv", True, 3, 8),
        ("send_recv", False, 2, 16),
    ]


def test_the_operation_is_that_of_the_program():
    """One per kernel, in the order asked for: of an all-to-all that runs as SendRecv, and of kernels that name none."""
    peers = ((n, p) for p in range(3) for n in ("ncclSend", "ncclRecv"))
    inner = [nccl(5 + i, 6 + i, name, "0xa", 1, bytes=8, peer=peer) for i, (name, peer) in enumerate(peers)]
    profile = make(
        ops=[
            comm(100, 200, call=1),
            op(200, 210, "ncclDevKernel_Generic", 9, call=2),
            op(220, 230, "ncclDevKernel_Broadcast_RING", 9, call=3),
        ],
        calls=[call(55, 57, id=1), call(72, 74, id=2), call(90, 91, id=3)],
        comms=[*group(0, *inner), nccl(70, 80, "ncclAllReduce", "0xa", bytes=4)],
    )
    data = next(iter(ranks_of(profile)))
    assert operations(data, np.array([2, 0, 1])).to_list() == ["broadcast", "all_to_all", "all_reduce"]


def test_sends_to_everyone_are_an_all_to_all():
    inner = [
        nccl(5 + i, 6 + i, name, "0xa", 1, bytes=8, peer=peer)
        for i, (name, peer) in enumerate((n, p) for p in range(3) for n in ("ncclSend", "ncclRecv"))
    ]
    (found,) = sides(ops=[comm(100, 200, call=1)], calls=[call(55, 57, id=1)], comms=group(0, *inner))
    assert (found["kind"], found["bytes"], found["parted"]) == ("all_to_all", 24, False)


def test_several_communicators_in_a_group_are_several_kernels_in_order():
    rows = sides(
        ops=[op(100, 150, "ncclDevKernel_AllReduce", 9, call=1), op(200, 250, "ncclDevKernel_AllReduce", 8, call=2)],
        calls=[call(52, 53, id=1), call(54, 55, id=2)],
        comms=group(
            0,
            nccl(5, 6, "ncclAllReduce", "0xz", 1, bytes=10),
            nccl(7, 8, "ncclAllReduce", "0xa", 1, bytes=20),
            nccl(9, 10, "ncclAllReduce", "0xz", 1, bytes=30),
        ),
    )
    assert [(r["communicator"], r["bytes"]) for r in rows] == [("0xz", 40), ("0xa", 20)]


def test_a_kernel_missing_from_the_trace_does_not_shift_the_others():
    rows = sides(
        ops=[op(100, 150, "ncclDevKernel_AllReduce", 9, call=3)],
        calls=[call(12, 14, id=1), call(42, 44, id=3)],
        comms=[nccl(at, at + 10, "ncclAllReduce", "0xa", bytes=4) for at in (10, 25, 40)],
    )
    assert [(r["op"], r["seq"]) for r in rows] == [(0, 2)]


def test_metadata_on_the_kernel():
    rows = sides(
        ops=[comm(100, 200, call=1), comm(300, 400, call=2)],
        calls=[call(10, 12, id=1), call(20, 22, id=2)],
        comms=[
            nccl(100, 200, "all_to_allv", "1 [0, 1]", correlation=1, bytes=64) | {"tid": None},
            nccl(15, 16, "send", "0 [0, 1]", 1, bytes=4, peer=1),
        ],
    )
    assert [(r["kind"], r["communicator"], r["known_by"]) for r in rows] == [
        ("all_to_all", "1 [0, 1]", "metadata"),
        ("send_recv", "0 [0, 1]", "metadata"),
    ]


def test_without_calls_the_name_of_the_kernel_is_left():
    (found,) = sides(ops=[op(0, 10, "ncclKernel_ReduceScatter_TREE_LL", 9)], calls=[])
    assert (found["kind"], found["communicator"], found["known_by"]) == ("reduce_scatter", None, None)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclAllReduce", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("ALLTOALL_BASE", "all_to_all"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
        ("void cross_device_reduce_1stage<float, 8>", "all_reduce"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast"),
        ("_reduce_oop", "reduce"),
        ("ncclSend", "send"),
        ("recv", "recv"),
        ("ncclGroupEnd", None),
        ("ncclCommInitRankConfig", None),
        ("ncclDevKernel_Generic", None),
    ],
)
def test_names_of_operations(name, kind):
    assert kinds(pl.Series([name])).to_list() == [kind]
