"""The host side of a Kineto trace: annotations, `record_param_comms` rows, calls, and what ops inherit from them."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepscope.model.api_names import api_name
from stepscope.simulate.kineto.comms import COLLECTIVES, ProcessGroups, call_of_kernel, dtype_of
from stepscope.simulate.kineto.json import EventList, encoded
from stepscope.simulate.trace.hostlinks import Rows, innermost, launches
from stepscope.simulate.trace.rankview import RankView, setup_range
from stepscope.simulate.trace.trace import DOMAIN_NCCL, I32, I64, SimTrace

#: Kineto prints CUPTI's number of the API call.
_CBID = {
    "cudaMalloc": 20,
    "cudaFree": 22,
    "cudaHostAlloc": 27,
    "cudaMemcpy": 31,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaStreamSynchronize": 131,
    "cudaEventRecord": 135,
    "cudaEventSynchronize": 137,
    "cudaEventQuery": 138,
    "cudaStreamWaitEvent": 147,
    "cudaDeviceSynchronize": 165,
    "cudaLaunchKernel": 211,
    "cuLaunchKernelEx": 652,
}


@dataclass
class HostRows:
    """Annotations and operators of a rank; the External id of a row is its position, counted from 1 or after others."""

    name: list[str]  # as JSON
    start: I64
    end: I64
    tid: I32
    is_op: npt.NDArray[np.bool_]  # an operator (`cpu_op`) rather than an annotation
    args: list[str]  # further JSON members, each text beginning with a comma
    launch: Rows  # per GPU op: the row of its call, or -1
    metadata: npt.NDArray[np.object_]  # per GPU op: JSON members about its collective, or ""
    ids_before: int = 0  # of other devices of the process


def host_rows(trace: SimTrace, one: RankView, groups: ProcessGroups) -> HostRows:
    """Turn the ranges of a rank into rows: its own as annotations, NCCL's as PyTorch's view of the same calls."""
    ranges, names = one.ranges, trace.names
    own = np.flatnonzero(ranges.domain != DOMAIN_NCCL)
    texts = encoded(names, np.unique(ranges.name[own]))
    name: list[str] = texts[ranges.name[own]].tolist()
    start, end, tid = ranges.start[own].tolist(), ranges.end[own].tolist(), ranges.tid[own].tolist()
    label = setup_range(one, names)
    if label is not None:
        name.insert(0, json.dumps(one.rank.setup))
        start.insert(0, label[0])
        end.insert(0, label[1])
        tid.insert(0, one.rank.main_tid)
    args, is_op = [""] * len(name), [False] * len(name)

    launch = launches(one.ops, one.calls)
    kernel_in, metadata = _nccl_launches(one, launch)
    for row in np.flatnonzero(ranges.domain == DOMAIN_NCCL).tolist():
        call, group = names[ranges.name[row]], int(ranges.group[row])
        kernel = kernel_in.get(row)
        events: list[tuple[str, bool, str]] = []
        if call in COLLECTIVES and group >= 0:
            size, peer = int(ranges.bytes[row]), int(ranges.peer[row])
            dtype = dtype_of(names[one.ops.name[kernel[0]]] if kernel else "", size)
            on_kernel, on_host = groups.metadata(call, group, size, peer, dtype)
            events.append(("record_param_comms", True, on_kernel + on_host))
            if kernel:
                metadata[kernel] = on_kernel
                events.append((groups.annotation(call, group, peer), False, ""))
        elif kernel:
            # A group's kernel starts at its end; PyTorch tells nothing about it but that it was coalesced.
            events.append(("nccl:coalesced", False, ""))
        for text, operator, more in events:
            name.append(json.dumps(text))
            start.append(int(ranges.start[row]))
            end.append(int(ranges.end[row]))
            tid.append(int(ranges.tid[row]))
            is_op.append(operator)
            args.append(more)

    _without_range(one, names, groups, kernel_in, metadata)
    times = np.array(start, dtype=np.int64), np.array(end, dtype=np.int64)
    return HostRows(name, *times, np.array(tid, dtype=np.int32), np.array(is_op, dtype=bool), args, launch, metadata)


def _nccl_launches(one: RankView, launch: Rows) -> tuple[dict[int, list[int]], npt.NDArray[np.object_]]:
    """The ops launched inside each NCCL range, by row of the range; and an empty metadata column to fill."""
    ranges, calls = one.ranges, one.calls
    nccl = np.flatnonzero(ranges.domain == DOMAIN_NCCL)
    ops = np.flatnonzero((launch >= 0) & (one.ops.group >= 0))
    at = launch[ops]
    inside = innermost(ranges.start[nccl], ranges.end[nccl], ranges.tid[nccl], calls.start[at], calls.tid[at])
    ops_of: dict[int, list[int]] = {}
    for op, row in zip(ops.tolist(), inside.tolist(), strict=True):
        if row >= 0:
            ops_of.setdefault(int(nccl[row]), []).append(op)
    return ops_of, np.full(len(launch), "", dtype=object)


def _without_range(
    one: RankView,
    names: list[str],
    groups: ProcessGroups,
    kernel_in: dict[int, list[int]],
    metadata: npt.NDArray[np.object_],
) -> None:
    """Metadata of communication whose NCCL call is not in the trace: from what the op itself says."""
    covered = {op for ops in kernel_in.values() for op in ops}
    ops = one.ops
    for op in np.flatnonzero(ops.group >= 0).tolist():
        call = None if op in covered else call_of_kernel(names[ops.name[op]], int(ops.peer[op]))
        if call is not None:
            size = int(ops.comm_bytes[op])
            dtype = dtype_of(names[ops.name[op]], size)
            metadata[op] = groups.metadata(call, int(ops.group[op]), size, int(ops.peer[op]), dtype)[0]


def write_host(events: EventList, names: list[str], one: RankView, rows: HostRows) -> npt.NDArray[np.object_]:
    """Write annotations, operators and calls with their outgoing flows. Returns per op the text of its External id."""
    pid, calls = one.rank.pid, one.calls
    ids = np.arange(1, len(rows.name) + 1) + rows.ids_before
    head = f'{{"ph": "X", "cat": "%s", "name": %s, "pid": {pid}, "tid": %d, "ts": %d.%s, "dur": %d.%s, "args": '
    events.add(
        head + '{"External id": %d, "Record function id": 0, "Ev Idx": %d%s}}',
        np.where(rows.is_op, "cpu_op", "user_annotation"),
        rows.name,
        rows.tid,
        *events.stamp(rows.start),
        *events.span(rows.end - rows.start),
        ids,
        ids - 1,
        rows.args,
    )

    # Only operators lend their id: Kineto keeps annotations in a correlation of their own.
    operators = np.flatnonzero(rows.is_op)
    inside = innermost(rows.start[operators], rows.end[operators], rows.tid[operators], calls.start, calls.tid)
    texts = np.array([*(f'"External id": {ids[i]}, ' for i in operators.tolist()), ""], dtype=object)
    external = texts[inside]  # -1 is the empty text at the end

    used = np.unique(calls.name)
    plain = [api_name(n) for n in names]
    cbid = np.array([_CBID.get(n, 0) for n in plain])
    events.add(
        head + '{%s"cbid": %d, "correlation": %d}}',
        np.where(calls.driver, "cuda_driver", "cuda_runtime"),
        encoded(plain, used)[calls.name],
        calls.tid,
        *events.stamp(calls.start),
        *events.span(calls.end - calls.start),
        external,
        cbid[calls.name],
        calls.correlation,
    )
    starts = np.unique(rows.launch[rows.launch >= 0])
    events.add(
        f'{{"ph": "s", "id": %d, "pid": {pid}, "tid": %d, "ts": %d.%s, "cat": "ac2g", "name": "ac2g"}}',
        calls.correlation[starts],
        calls.tid[starts],
        *events.stamp(calls.start[starts]),
    )
    result = np.full(len(rows.launch), "", dtype=object)
    launched = rows.launch >= 0
    result[launched] = external[rows.launch[launched]]
    return result
