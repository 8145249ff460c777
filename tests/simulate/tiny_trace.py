"""A trace small enough to write by hand: two nodes, three ranks, one of every thing the writers must write."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from stepscope.simulate.trace.trace import (
    DOMAIN_DEFAULT,
    DOMAIN_NCCL,
    KERNEL,
    MEMCPY,
    MEMSET,
    SYNC_CONTEXT,
    SYNC_EVENT,
    SYNC_STREAM,
    SYNC_STREAM_WAIT,
    SimCalls,
    SimEvents,
    SimGroup,
    SimOps,
    SimRanges,
    SimRank,
    SimSyncs,
    SimTrace,
)

EPOCHS = [1_794_707_690_943_393_082, 1_794_707_690_943_999_999]
#: Above 2**63, as half of all communicator ids are.
WORLD_ID, EP_ID = 0xEC3B_0000_4216_8FCA, 0x1234
WORLD, EP = 0, 1
GEMM = 'void gemm<float, "q%s">(int)'  # what would break careless quoting
A2A = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
CHUNK = "forward chunk 0 (phase0) backward chunk 1 (phase1)"
_WIDE = {"start", "end", "correlation", "bytes", "comm_bytes"}


class Names(list[str]):
    """Names by first use."""

    def id(self, name: str) -> int:
        if name not in self:
            self.append(name)
        return self.index(name)


def table(cls: type, rows: list[tuple[Any, ...]]) -> Any:
    """Columns of a table from its rows."""
    columns = list(zip(*rows, strict=True)) or [()] * len(fields(cls))
    types = {"driver": bool} | dict.fromkeys(_WIDE, np.int64)
    return cls(
        **{f.name: np.array(c, dtype=types.get(f.name, np.int32)) for f, c in zip(fields(cls), columns, strict=True)}
    )


def label(rank: int) -> str:
    return f"rank={rank}; pp=0/1 dp=0/1 cp=0/1 ep={rank % 2}/2; mbs=1 seq=2048"


class Recorder:
    """Rows of one rank after another, their times relative to where the rank's timeline begins."""

    def __init__(self) -> None:
        self.names = Names()
        self.ops: list[tuple[Any, ...]] = []
        self.calls: list[tuple[Any, ...]] = []
        self.ranges: list[tuple[Any, ...]] = []
        self.syncs: list[tuple[Any, ...]] = []
        self.events: list[tuple[Any, ...]] = []
        self.rank = self.pid = self.zero = 0

    def op(self, kind: int, name: str, stream: int, start: int, end: int, corr: int, *more: int) -> None:
        tail = more or (0, 0, -1, -1, 0, -1)
        self.ops.append((self.rank, kind, self.names.id(name), stream, self.zero + start, self.zero + end, corr, *tail))

    def call(self, name: str, start: int, end: int, corr: int) -> None:
        times = self.zero + start, self.zero + end
        self.calls.append((self.rank, self.pid, self.names.id(name), *times, corr, not name.startswith("cuda")))

    def push(self, name: str, start: int, end: int, *nccl: int) -> None:
        domain = DOMAIN_NCCL if name.startswith("nccl") else DOMAIN_DEFAULT
        times = self.zero + start, self.zero + end
        self.ranges.append((self.rank, self.pid, self.names.id(name), *times, domain, *(nccl or (-1, 0, -1))))

    def sync(self, kind: int, stream: int, name: str, start: int, end: int, corr: int, event: int) -> None:
        self.call(name, start, end, corr)
        self.syncs.append((self.rank, kind, stream, self.zero + start, self.zero + end, corr, event))


def tiny() -> SimTrace:
    """Ranks 0 and 1 on node 0 do everything; rank 2 on node 1 runs one kernel."""
    to = Recorder()
    ranks = []
    for r in range(3):
        node, pid = (0, 300 + r) if r < 2 else (1, 300)
        ranks.append(SimRank(r, pid, node, f"node{node}", r % 2, label(r), {"ep": (r % 2, 2)}, pid))
        # Odd nanoseconds, and a lag per rank: nothing rounds to the right answer by accident.
        to.rank, to.pid, to.zero = r, pid, 1_000_003 + 7 * r
        _stages(to, r)
    return SimTrace(
        names=list(to.names),
        ranks=ranks,
        groups=[SimGroup(WORLD_ID, "world", (0, 1, 2)), SimGroup(EP_ID, "ep", (0, 1))],
        ops=table(SimOps, to.ops),
        calls=table(SimCalls, to.calls),
        ranges=table(SimRanges, to.ranges),
        syncs=table(SimSyncs, to.syncs),
        events=table(SimEvents, to.events),
        epoch_ns=list(EPOCHS),
    )


def _stages(to: Recorder, r: int) -> None:
    peer = 1 - r % 2
    to.push(CHUNK, 0, 9_000)
    to.push("layer00.stage1_f", 50, 501)
    to.call("cudaLaunchKernel", 101, 152, 11)
    to.op(KERNEL, GEMM, 7, 3_000, 7_001, 11)
    if r == 2:
        return
    to.call("cudaEventRecord", 202, 203, 12)
    to.events.append((r, 7, 12, 0))
    to.sync(SYNC_STREAM_WAIT, 21, "cudaStreamWaitEvent", 304, 306, 13, 0)
    to.push("layer00.stage2_f", 600, 1_500)
    to.push("ncclAlltoAll", 700, 1_201, EP, 1_048_576, -1)
    to.call("cuLaunchKernelEx", 800, 855, 14)
    to.op(KERNEL, A2A, 21, 7_001, 9_333, 14, 0, 0, EP, 0, 1_048_576, -1)
    to.push("ncclGroupStart", 2_000, 2_010)
    to.push("ncclSend", 2_020, 2_030, WORLD, 6_291_456, peer)
    to.push("ncclRecv", 2_040, 2_050, WORLD, 6_291_456, peer)
    to.push("ncclGroupEnd", 2_060, 2_500)
    to.call("cuLaunchKernelEx", 2_100, 2_177, 15)
    to.op(KERNEL, A2A, 17, 7_500, 8_200, 15, 0, 0, WORLD, 0, 6_291_456, peer)
    to.push("ncclAllReduce", 3_000, 3_400, WORLD, 4_000, -1)
    to.call("cuLaunchKernelEx", 3_100, 3_155, 16)
    to.op(KERNEL, REDUCE, 7, 9_400, 9_999, 16, 0, 0, WORLD, 1, 4_000, -1)
    to.call("cudaMemcpyAsync", 4_000, 4_123, 17)
    to.op(MEMCPY, "[CUDA memcpy HtoD]", 13, 10_001, 10_500, 17, 4_096, 1, -1, -1, 0, -1)
    to.call("cudaMemsetAsync", 4_200, 4_210, 18)
    to.op(MEMSET, "[CUDA memset]", 7, 10_600, 10_610, 18, 512, 0, -1, -1, 0, -1)
    to.sync(SYNC_STREAM, 7, "cudaStreamSynchronize", 5_000, 11_000, 19, -1)
    to.sync(SYNC_EVENT, -1, "cudaEventSynchronize", 11_100, 11_200, 20, 0)
    to.sync(SYNC_CONTEXT, -1, "cudaDeviceSynchronize", 11_300, 12_345, 21, -1)
