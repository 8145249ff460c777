"""What an nsys export says about the machine, the processes and the session, beside the events themselves."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import numpy as np

from stepscope.simulate.nsys import schema as nsys_schema
from stepscope.simulate.nsys.file import NsysFile
from stepscope.simulate.trace.rankview import CONTEXT, NULL_STREAM, RankView

#: Upper bytes of every global id: hardware 0, virtual machine 1.
VM = 1 << 48
_STREAM_NULL, _STREAM_NON_BLOCKING = 3, 2
_GPU: dict[str, int | str] = {
    "name": "NVIDIA H200",
    "isDiscrete": 1,
    "l2CacheSize": 62_914_560,
    "totalMemory": 150_109_880_320,
    "memoryBandwidth": 4_814_304_000_000,
    "clockRate": 1_980_000_000,
    "smCount": 132,
    "luid": 0,
    "chipName": "GH100",
    "ctxswDevPath": "",
    "ctrlDevPath": "",
    "revision": 161,
    "nodeMask": 0,
    "constantMemory": 65_536,
    "maxIPC": 0,
    "maxRegistersPerBlock": 65_536,
    "maxShmemPerBlock": 49_152,
    "maxShmemPerBlockOptin": 232_448,
    "maxShmemPerSm": 233_472,
    "maxRegistersPerSm": 65_536,
    "threadsPerWarp": 32,
    "asyncEngines": 3,
    "maxWarpsPerSm": 64,
    "maxBlocksPerSm": 32,
    "maxThreadsPerBlock": 1_024,
    "maxBlockDimX": 1_024,
    "maxBlockDimY": 1_024,
    "maxBlockDimZ": 64,
    "maxGridDimX": 2_147_483_647,
    "maxGridDimY": 65_535,
    "maxGridDimZ": 65_535,
    "computeMajor": 9,
    "computeMinor": 0,
    "smMajor": 9,
    "smMinor": 0,
}


def global_pid(pid: int) -> int:
    """A process, as the export names it in every table."""
    return VM | pid << 24


def global_tid(pid: int, tid: int) -> int:
    """A thread, likewise."""
    return global_pid(pid) | tid


def describe(file: NsysFile, views: list[RankView], epoch_ns: int, duration: int) -> None:
    """Fill the tables about the node on which the ranks of `views` ran."""
    host = views[0].rank.host
    _metadata(file, len(views), epoch_ns)
    _system(file, host, epoch_ns, duration)
    for device in sorted({v.rank.device for v in views}):
        digest = hashlib.sha256(f"{host}/{device}".encode()).hexdigest()
        uuid = "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))
        bus = f"0000:{0x10 + 8 * device:02x}:00.0"
        ids = {"vmId": VM, "id": device, "pwGpuId": device, "cuDevice": device}
        file.insert("TARGET_INFO_GPU", busLocation=bus, uuid=uuid, **ids, **_GPU)
    _processes(file, views)
    for view in views:
        _cuda(file, view)
    for table, rows in nsys_schema.ENUMS.items():
        file.insert_rows(table, rows)
    file.make("ANALYSIS_FILE")


def _metadata(file: NsysFile, ranks: int, epoch_ns: int) -> None:
    major, minor, micro = nsys_schema.VERSION.split(".")
    export = {
        "EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems",
        "EXPORT_PRODUCT_VERSION": nsys_schema.PRODUCT_VERSION,
        "EXPORT_SCHEMA_VERSION": nsys_schema.VERSION,
        "EXPORT_SCHEMA_VERSION_MAJOR": major,
        "EXPORT_SCHEMA_VERSION_MINOR": minor,
        "EXPORT_SCHEMA_VERSION_MICRO": micro,
        "EXPORT_TIME_UTC": _iso(epoch_ns),
        "EXPORT_PARAM_LAZY": "true",
        # Nobody should take this file for a measurement.
        "EXPORT_SIMULATED_BY": "stepscope",
    }
    capture = {
        "CAPTURE_EVENT_TYPE": "Cuda",
        "START_TRIGGER": "CudaProfilerStart",
        "PROCESS_0:COMMAND": "torchrun",
        "PROCESS_0:ARGUMENT_0": f"--nproc-per-node={ranks}",
        "PROCESS_0:COLLECT_NVTX_TRACE": "true",
        "PROCESS_0:COLLECT_CUDA_TRACE": "true",
        "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE": "Node",
        "SIMULATED_BY": "stepscope",
    }
    file.insert_rows("META_DATA_EXPORT", list(export.items()))
    file.insert_rows("META_DATA_CAPTURE", [("CAPTURE_EVENT_TYPE", "NvtxEvents"), *capture.items()])


def _system(file: NsysFile, host: str, epoch_ns: int, duration: int) -> None:
    properties = (
        ("CpuCores", 1, "64"),
        ("CpuArchitecture", 3, "x86_64"),
        ("NvDriverVersion", 205, "580.95.05"),
        ("HardwarePlatform", 600, "x86_64"),
        ("OsDescription", 605, "Simulated Linux"),
        ("CudaDriverVersion", 611, "13000"),
        ("Hostname", 619, host),
    )
    file.insert_rows("TARGET_INFO_SYSTEM_ENV", [(VM, "Local (CLI)", *p) for p in properties])
    file.insert_rows("TARGET_INFO_SESSION_START_TIME", [(epoch_ns, _iso(epoch_ns), _iso(epoch_ns))])
    # The profiler starts before the capture does; by how much means nothing to a reader.
    lead = 10_000_000_000
    file.insert_rows("ANALYSIS_DETAILS", [(VM, duration, lead, lead + duration)])
    text = "Simulated by stepscope: no GPU ran."
    file.insert("DIAGNOSTIC_EVENT", timestamp=0, timestampType=1, source=3, severity=1, text=text, globalPid=VM)


def _processes(file: NsysFile, views: list[RankView]) -> None:
    # An export lists every process of the machine: a reader must find the ranks by what they did.
    pids = list(dict.fromkeys(v.rank.pid for v in views))
    others = [(1, "systemd"), (max(min(pids) - 1, 2), "torchrun")]
    rows = [(pid, name) for pid, name in others if pid not in pids] + [(pid, "python") for pid in pids]
    file.insert_rows("PROCESSES", [(global_pid(pid), pid, name) for pid, name in rows])
    threads = []
    for view in views:
        pid, main = view.rank.pid, view.rank.main_tid
        tids = sorted({main, *np.unique(view.calls.tid).tolist(), *np.unique(view.ranges.tid).tolist()})
        workers = [tid for tid in tids if tid != main]
        threads.append((file.string("python"), 20, global_tid(pid, main)))
        for i, tid in enumerate(workers):
            threads.append((file.string(f"pt_autograd_{i}"), 20, global_tid(pid, tid)))
    file.insert_rows("ThreadNames", threads)


def _cuda(file: NsysFile, view: RankView) -> None:
    pid, device = view.rank.pid, view.rank.device
    file.insert_rows("TARGET_INFO_CUDA_DEVICE", [(device, device, pid)])
    file.insert_rows("TARGET_INFO_CUDA_CONTEXT_INFO", [(NULL_STREAM, 0, 1, pid, device, CONTEXT, 0, 0)])
    used = np.unique(np.concatenate([view.ops.stream, view.syncs.stream, view.events.stream])).tolist()
    streams = sorted({NULL_STREAM, *(s for s in used if s >= 0)})
    flags = [_STREAM_NULL if s == NULL_STREAM else _STREAM_NON_BLOCKING for s in streams]
    rows = [(s, 0, 1, pid, CONTEXT, 0, flag) for s, flag in zip(streams, flags, strict=True)]
    file.insert_rows("TARGET_INFO_CUDA_STREAM", rows)


def _iso(epoch_ns: int) -> str:
    return datetime.fromtimestamp(epoch_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
