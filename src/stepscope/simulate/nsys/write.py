"""A simulated node as nsys would have exported it: SQLite, schema 3.20.3, with blobs and JSON of NCCL's payloads."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepscope.model.api_names import api_name
from stepscope.simulate.nsys.file import NsysFile, exporting
from stepscope.simulate.nsys.payload import PAYLOADS, REDUCTION_ENUM, REDUCTIONS, communicator_ids, encode
from stepscope.simulate.nsys.target import describe, global_pid, global_tid
from stepscope.simulate.trace.rankview import (
    CONTEXT,
    RankView,
    epoch_ns,
    event_ids,
    launch_of,
    setup_range,
    view,
)
from stepscope.simulate.trace.trace import (
    DOMAIN_NCCL,
    I64,
    KERNEL,
    MEMCPY,
    MEMSET,
    SYNC_STREAM,
    SYNC_STREAM_WAIT,
    SimRanges,
    SimTrace,
)

_PUSH_POP, _DOMAIN_CREATE = 59, 75
#: Unsigned 32-bit "none" of CUPTI.
_NONE = 0xFFFF_FFFF
#: When each process made NCCL's domain: at start-up, before the capture.
_DOMAIN_CREATED_NS = -2_000_000_000
_PINNED, _DEVICE = 1, 2
#: Source and destination memory by `copyKind`. Hosts copy from and to pinned memory, as a healthy trainer does.
_SOURCE = {1: _PINNED, 2: _DEVICE, 8: _DEVICE, 9: _PINNED, 10: _DEVICE}
_TARGET = {1: _DEVICE, 2: _PINNED, 8: _DEVICE, 9: _PINNED, 10: _DEVICE}

#: CUPTI names a runtime call with the CUDA version that introduced its current form; those not from 3.2:
_CALL_VERSION = {
    "cudaLaunchKernel": 7000,
    "cudaLaunchKernelExC": 11060,
    "cudaLaunchCooperativeKernel": 9000,
    "cudaEventRecordWithFlags": 11010,
    "cudaGraphLaunch": 10000,
    "cudaGraphInstantiate": 12000,
    "cudaStreamIsCapturing": 10000,
    "cudaStreamGetCaptureInfo": 12030,
    "cudaThreadExchangeStreamCaptureMode": 10010,
    "cudaMallocAsync": 11020,
    "cudaFreeAsync": 11020,
    "cudaStreamCreateWithPriority": 5050,
    "cudaGetFuncBySymbol": 11000,
}
_BASE_NAME = re.compile(r"(?:[\w~]+::)*(?P<base>[\w~]+)\s*(?:<|\(|$)")


def write(trace: SimTrace, node: int, path: Path) -> None:
    """Write the ranks of `node` to `path`; the same trace gives the same bytes."""
    ranks = [r for r in trace.ranks if r.node == node]
    if not ranks:
        raise ValueError(f"no rank of this trace is on node {node}")
    views = [view(trace, rank) for rank in ranks]
    ends = [int(t.end.max()) for v in views for t in (v.ops, v.calls, v.ranges) if len(t.end)]
    with exporting(path) as file:
        describe(file, views, epoch_ns(trace, node), max(ends, default=0))
        _schemas(file, trace, views)
        names = np.array(trace.names, dtype=object)
        for one in views:
            _ranges(file, trace, one, names)
            _calls(file, one, trace.names)
            _kernels(file, one, trace.names)
            _copies(file, one)
            _memsets(file, one)
            _waits(file, one)


def _lookup(file: NsysFile, used: npt.NDArray[np.int32], texts: dict[int, str]) -> I64:
    """Ids of texts, by index of the name they stand for."""
    table = np.zeros(int(used.max(initial=-1)) + 1, dtype=np.int64)
    for i, text in texts.items():
        table[i] = file.string(text)
    return table


def _ranges(file: NsysFile, trace: SimTrace, one: RankView, names: npt.NDArray[np.object_]) -> None:
    pid, ranges = one.rank.pid, one.ranges
    main = global_tid(pid, one.rank.main_tid)
    nccl = ranges.domain == DOMAIN_NCCL
    if nccl.any():
        create = {"start": _DOMAIN_CREATED_NS + one.rank.rank, "eventType": _DOMAIN_CREATE, "domainId": DOMAIN_NCCL}
        file.insert("NVTX_EVENTS", **create, text="NCCL", globalTid=main)
    label = setup_range(one, trace.names)
    if label is not None:
        start, end = label
        row = {"start": start, "end": end, "eventType": _PUSH_POP, "domainId": 0}
        file.insert("NVTX_EVENTS", **row, text=one.rank.setup, globalTid=main)
    own = np.flatnonzero(~nccl)
    file.insert(
        "NVTX_EVENTS",
        start=ranges.start[own],
        end=ranges.end[own],
        eventType=_PUSH_POP,
        text=names[ranges.name[own]],
        globalTid=global_pid(pid) | ranges.tid[own].astype(np.int64),
        domainId=0,
    )
    rows = np.flatnonzero(nccl)
    used = np.unique(ranges.name[rows])
    ids = _lookup(file, used, {i: trace.names[i] for i in used.tolist()})
    blobs, texts = _payloads(trace, ranges, rows)
    # NCCL registers its strings, so its ranges have a textId where others have a text.
    file.insert(
        "NVTX_EVENTS",
        start=ranges.start[rows],
        end=ranges.end[rows],
        eventType=_PUSH_POP,
        globalTid=global_pid(pid) | ranges.tid[rows].astype(np.int64),
        textId=ids[ranges.name[rows]],
        domainId=DOMAIN_NCCL,
        jsonText=texts,
        binaryData=blobs,
    )


def _payloads(trace: SimTrace, ranges: SimRanges, rows: npt.NDArray[np.intp]) -> tuple[list[object], list[object]]:
    """Blob and JSON of each NCCL range; None for calls without (group start and end)."""
    blobs = np.full(len(rows), None, dtype=object)
    texts = np.full(len(rows), None, dtype=object)
    comm = communicator_ids(trace.groups)
    name, group = ranges.name[rows], ranges.group[rows]
    for i in np.unique(name).tolist():
        if trace.names[i] in PAYLOADS:
            at = np.flatnonzero((name == i) & (group >= 0))
            src = rows[at]
            blobs[at], texts[at] = encode(trace.names[i], comm[group[at]], ranges.bytes[src], ranges.peer[src])
    return blobs.tolist(), texts.tolist()


def _schemas(file: NsysFile, trace: SimTrace, views: list[RankView]) -> None:
    """The layout of the payloads, once per process that used them, as every process registers its own."""
    for one in views:
        nccl = one.ranges.domain == DOMAIN_NCCL
        calls = [trace.names[i] for i in np.unique(one.ranges.name[nccl]).tolist()]
        kinds = sorted({PAYLOADS[c] for c in calls if c in PAYLOADS})
        schemas, entries = [], []
        for kind in kinds:
            schemas.append((DOMAIN_NCCL, kind.schema, None, 1, None, len(kind.entries), kind.size, None))
            for i, (field, offset) in enumerate(kind.entries):
                # Zero is exported as NULL.
                entries.append((DOMAIN_NCCL, kind.schema, i, None, field.type, field.label, None, None, offset or None))
        file.insert_rows("NVTX_PAYLOAD_SCHEMAS", schemas)
        file.insert_rows("NVTX_PAYLOAD_SCHEMA_ENTRIES", entries)
        if any(field.type == REDUCTION_ENUM for kind in kinds for field in kind.more):
            values = [(DOMAIN_NCCL, REDUCTION_ENUM, i, name, i or None, None) for i, name in enumerate(REDUCTIONS)]
            file.insert_rows("NVTX_PAYLOAD_ENUMS", [(DOMAIN_NCCL, REDUCTION_ENUM, None, len(REDUCTIONS), 4)])
            file.insert_rows("NVTX_PAYLOAD_ENUM_ENTRIES", values)


def _calls(file: NsysFile, one: RankView, names: list[str]) -> None:
    calls = one.calls
    used = np.unique(calls.name)
    ids = _lookup(file, used, {i: _versioned(names[i]) for i in used.tolist()})
    file.insert(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        start=calls.start,
        end=calls.end,
        eventClass=calls.driver.astype(np.int64),
        globalTid=global_pid(one.rank.pid) | calls.tid.astype(np.int64),
        correlationId=calls.correlation,
        nameId=ids[calls.name],
        returnValue=0,
    )


def _versioned(call: str) -> str:
    if not call.startswith("cuda") or api_name(call) != call:
        return call
    return f"{call}_v{_CALL_VERSION.get(call, 3020)}"


def _kernels(file: NsysFile, one: RankView, names: list[str]) -> None:
    ops, rows = one.ops, np.flatnonzero(one.ops.kind == KERNEL)
    name = ops.name[rows]
    used = np.unique(name)
    full = {i: names[i] for i in used.tolist()}
    launch = np.zeros((int(used.max(initial=-1)) + 1, 5), dtype=np.int64)
    for i, text in full.items():
        launch[i] = launch_of(text, one.rank.batch)
    registers, grid, block, static, dynamic = launch[name].T
    file.insert(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        start=ops.start[rows],
        end=ops.end[rows],
        deviceId=one.rank.device,
        contextId=CONTEXT,
        greenContextId=0,
        streamId=ops.stream[rows],
        correlationId=ops.correlation[rows],
        globalPid=global_pid(one.rank.pid),
        demangledName=_lookup(file, used, full)[name],
        shortName=_lookup(file, used, {i: short_name(text) for i, text in full.items()})[name],
        launchType=1,
        cacheConfig=1,
        registersPerThread=registers,
        gridX=grid,
        gridY=1,
        gridZ=1,
        blockX=block,
        blockY=1,
        blockZ=1,
        staticSharedMemory=static,
        dynamicSharedMemory=dynamic,
        localMemoryPerThread=0,
        localMemoryTotal=250_871_808,
        gridId=np.arange(1, len(rows) + 1),
        sharedMemoryExecuted=233_472,
        sharedMemoryLimitConfig=1,
    )


def short_name(kernel: str) -> str:
    """The kernel's own name, without return type, namespaces, template arguments and parameters."""
    match = _BASE_NAME.search(kernel.removeprefix("void "))
    return match["base"] if match else kernel


def _gpu_work(one: RankView, rows: npt.NDArray[np.intp]) -> dict[str, npt.NDArray[np.generic] | int]:
    """The columns that copies and memsets share."""
    ops = one.ops
    return {
        "start": ops.start[rows],
        "end": ops.end[rows],
        "deviceId": one.rank.device,
        "contextId": CONTEXT,
        "greenContextId": 0,
        "streamId": ops.stream[rows],
        "correlationId": ops.correlation[rows],
        "globalPid": global_pid(one.rank.pid),
        "bytes": ops.bytes[rows],
    }


def _copies(file: NsysFile, one: RankView) -> None:
    rows = np.flatnonzero(one.ops.kind == MEMCPY)
    kind = one.ops.copy_kind[rows]
    source = np.array([_SOURCE.get(k, _DEVICE) for k in range(16)])[kind]
    target = np.array([_TARGET.get(k, _DEVICE) for k in range(16)])[kind]
    columns = _gpu_work(one, rows)
    file.insert("CUPTI_ACTIVITY_KIND_MEMCPY", **columns, copyKind=kind, srcKind=source, dstKind=target, copyCount=1)


def _memsets(file: NsysFile, one: RankView) -> None:
    columns = _gpu_work(one, np.flatnonzero(one.ops.kind == MEMSET))
    file.insert("CUPTI_ACTIVITY_KIND_MEMSET", **columns, value=0, memKind=_DEVICE)


def _waits(file: NsysFile, one: RankView) -> None:
    """Event records, and the host calls that wait for them, for a stream or for the device."""
    process = {"deviceId": one.rank.device, "contextId": CONTEXT, "globalPid": global_pid(one.rank.pid)}
    events, syncs = one.events, one.syncs
    file.insert(
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
        **process,
        greenContextId=0,
        streamId=events.stream,
        correlationId=events.correlation,
        eventId=event_ids(events.event),
        eventSyncId=events.event,
    )
    some = syncs.event >= 0
    # "None" needs more than the 32 bits that the trace's columns have.
    stream, event = syncs.stream.astype(np.int64), syncs.event.astype(np.int64)
    file.insert(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        **process,
        start=syncs.start,
        end=syncs.end,
        streamId=np.where(stream >= 0, stream, _NONE),
        correlationId=syncs.correlation,
        # This schema's exporters give a stream synchronization the number of a stream wait; readers go by the call.
        syncType=np.where(syncs.kind == SYNC_STREAM, SYNC_STREAM_WAIT, syncs.kind),
        eventId=np.where(some, event_ids(syncs.event), _NONE),
        eventSyncId=np.where(some, event, _NONE),
    )
