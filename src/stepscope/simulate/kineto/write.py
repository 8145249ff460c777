"""A simulated process as torch.profiler would have exported it: Kineto's JSON, one file each, mostly of one rank."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from stepscope.simulate.kineto.comms import ProcessGroups
from stepscope.simulate.kineto.gpu import write_gpu
from stepscope.simulate.kineto.host import HostRows, host_rows, write_host
from stepscope.simulate.kineto.json import EventList, packing
from stepscope.simulate.trace.rankview import RankView, epoch_ns, view
from stepscope.simulate.trace.trace import SimRank, SimTrace

#: Kineto counts from a base that moves every quarter of a year, so that microseconds fit a double to the nanosecond.
_BASE_STEP_NS = 7_889_238 * 1_000_000_000
_NCCL_VERSION = "2.28.9"
#: What Kineto sorts devices by, to show them below the processes.
_DEVICE_SORT = 5_000_000
_DEVICE = {
    "name": "NVIDIA H200",
    "totalGlobalMem": 150_109_880_320,
    "computeMajor": 9,
    "computeMinor": 0,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65_536,
    "warpSize": 32,
    "sharedMemPerBlock": 49_152,
    "numSms": 132,
    "regsPerMultiprocessor": 65_536,
    "sharedMemPerBlockOptin": 232_448,
    "sharedMemPerMultiprocessor": 233_472,
}


def write(trace: SimTrace, rank: int, path: Path, *others: int) -> None:
    """Write one rank to `path`, gzipped where that ends in `.gz`; the same trace gives the same bytes.

    `others` are further ranks of the same process, each on a GPU of its own. No process of `torch.distributed` is
    several ranks: such a file says none, as those of JAX do.
    """
    wanted = [r for each in (rank, *others) for r in trace.ranks if r.rank == each]
    if len(wanted) != 1 + len(others):
        raise ValueError(f"this trace has no rank {rank}")
    me = wanted[0]
    epoch = epoch_ns(trace, me.node)
    base = epoch // _BASE_STEP_NS * _BASE_STEP_NS
    with packing(path) as out:
        out.write(_head(trace, me, None if others else ProcessGroups(trace, rank), base).encode())
        events = EventList(out, base, epoch)
        before = 0
        for device in wanted:
            one = view(trace, device)
            rows = host_rows(trace, one, ProcessGroups(trace, device.rank))
            rows.ids_before = before
            before += len(rows.name)
            external = write_host(events, trace.names, one, rows)
            write_gpu(events, trace.names, one, rows, external)
            _headers(events, one, rows)
        out.write(f'\n  ],\n  "traceName": "rank{rank}.pt.trace.json"\n}}\n'.encode())


def _head(trace: SimTrace, me: SimRank, groups: ProcessGroups | None, base: int) -> str:
    devices = sorted({r.device for r in trace.ranks if r.node == me.node})
    head: dict[str, object] = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": d, **_DEVICE} for d in devices],
        "trace_id": hashlib.sha256(f"{me.host}/{me.rank}".encode()).hexdigest()[:32].upper(),
        # Nobody should take this file for a measurement.
        "simulated_by": "stepscope",
    }
    if groups is not None:
        head["distributedInfo"] = {
            "backend": "nccl",
            "rank": me.rank,
            "world_size": groups.world,
            "pg_count": groups.count,
            "pg_config": groups.config,
            "nccl_version": _NCCL_VERSION,
        }
    head |= {
        "cuda_driver_version": 13000,
        "cuda_runtime_version": 13000,
        "cupti_version": 130001,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base,
    }
    members = ",\n  ".join(f'"{key}": {json.dumps(value)}' for key, value in head.items())
    return f'{{\n  {members},\n  "traceEvents": [\n'


def _headers(events: EventList, one: RankView, rows: HostRows) -> None:
    """Names of processes, threads and streams, and the span of the recording."""
    me = one.rank
    tables = [t for t in (one.ops, one.calls, rows) if len(t.start)]
    first = min((int(t.start.min()) for t in tables), default=0)
    last = max((int(t.end.max()) for t in tables), default=0)
    headers: list[dict[str, object]] = []

    def name(kind: str, pid: int | str, tid: int, **args: object) -> None:
        headers.append({"name": kind, "ph": "M", "ts": first, "pid": pid, "tid": tid, "args": args})

    for pid, label, order in ((me.pid, "CPU", me.pid), (me.device, f"GPU {me.device}", _DEVICE_SORT + me.device)):
        name("process_name", pid, 0, name="python")
        name("process_labels", pid, 0, labels=label)
        name("process_sort_index", pid, 0, sort_index=order)
    for stream in np.unique(np.concatenate([one.ops.stream, one.syncs.stream])).tolist():
        name("thread_name", me.device, stream, name=f"stream {stream} ")
        name("thread_sort_index", me.device, stream, sort_index=stream)
    workers = sorted({*np.unique(one.calls.tid).tolist(), *np.unique(rows.tid).tolist()} - {me.main_tid})
    threads = [(me.main_tid, "python"), *((tid, f"pt_autograd_{i}") for i, tid in enumerate(workers))]
    for tid, text in threads:
        name("thread_name", me.pid, tid, name=f"thread {tid} ({text})")
        name("thread_sort_index", me.pid, tid, sort_index=tid)
    spans = {"pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)", "args": {"Op count": 0}}
    headers.append({"ph": "X", "cat": "Trace", "ts": first, "dur": last - first, **spans})
    marks = {"Iteration Start: PyTorch Profiler": first, "Record Window End": last}
    for text, when in marks.items():
        headers.append(
            {"name": text, "ph": "i", "s": "g", "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": when}
        )
    events.add_objects(headers)
