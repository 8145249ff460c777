"""Who was profiled: the processes of an export that are ranks, and what it says about each."""

from __future__ import annotations

import json
from collections import defaultdict

import polars as pl

from stepscope.errors import BadInput
from stepscope.model.capturing import capture_with
from stepscope.model.devices import several
from stepscope.model.labels import parse_setup
from stepscope.model.source import process_table
from stepscope.sources.nsys.comms import world_of
from stepscope.sources.nsys.events import Export
from stepscope.sources.nsys.extras import extra_tables
from stepscope.sources.nsys.mapping import GPU_TABLES, GRAPH, KERNEL, MAX_I32, NVTX, RUNTIME
from stepscope.sources.nsys.ranges import MARK, PUSH_POP, START_END
from stepscope.sources.nsys.tables import field, text_field

_PID = 0xFFFFFF


def find_processes(export: Export) -> pl.DataFrame:
    """`schema.PROCESSES` by process key; the export keeps the keys."""
    devices = export.devices = _devices(export)
    labels = _labels(export)
    keys = set(devices) | set(labels)
    keys |= _with_calls(export, _with_context(export) - keys) if keys else _distinct(export, RUNTIME.table, "globalTid")
    keys = keys or _with_ranges(export)
    keys = keys or _with_records(export)
    if not keys and any(export.tables.has(table) for table in GPU_TABLES):
        keys = {0}  # exports of 2020 name no process: there is one
    if not keys:
        raise BadInput(
            f"{export.tables.path}: holds no GPU activity, CUDA calls, NVTX ranges or calls of the OS runtime",
            capture_with(),
        )
    export.keys = tuple(sorted(keys))
    world = world_of(export)
    host = _hostname(export)
    gpus = Gpus(export)
    apart = _computing_on_several(export)
    rows = []
    for proc, key in enumerate(export.keys):
        pid = key & _PID
        device = min(devices[key]) if devices.get(key) else gpus.only_device(pid)
        label = labels.get(key)
        rank, size = world.get(proc, (None, None))
        rows.append(
            {
                "proc": proc,
                "pid": pid,
                "host": host,
                "device": device,
                "gpu": None if device is None else gpus.name(pid, device),
                "gpu_id": None if device is None else gpus.certain(pid, device),
                "rank": label[0] if label else rank,
                "rank_from": "setup label" if label else None if rank is None else "NCCL payload",
                "setup": label[1] if label else None,
                "world_size": size,
                "devices": apart.get(proc),
            }
        )
    return process_table(rows)


def _computing_on_several(export: Export) -> dict[int, str]:
    """By process that computes on several GPUs, which. Kernels are counted only where the question arises."""
    asked = {key: proc for proc, key in enumerate(export.keys) if len(export.devices.get(key, ())) > 1}
    if not asked:
        return {}
    columns = {"process": field("globalPid"), "device": field("deviceId")}
    kernels = pl.concat([export.tables.frame(table, columns) for table in (KERNEL.table, GRAPH.table)])
    counted = kernels.drop_nulls().group_by("process", "device").len()
    proc = (pl.col("process") // (1 << 24)).replace_strict(asked, default=None, return_dtype=pl.Int32)
    return several(counted.with_columns(proc.alias("proc")).drop_nulls("proc"))


def _devices(export: Export) -> dict[int, set[int]]:
    """CUDA ordinals of the devices that each process with GPU activity used."""
    devices: defaultdict[int, set[int]] = defaultdict(set)
    for table in GPU_TABLES:
        for process, device in export.tables.distinct(table, "globalPid", "deviceId"):
            if process is not None:
                devices[process >> 24] |= {device} if device is not None and 0 <= device <= MAX_I32 else set()
    return dict(devices)


def _labels(export: Export) -> dict[int, tuple[int, str]]:
    """Rank and setup label by process; the label may have been pushed before the capture began."""
    tables = export.tables
    texts = tables.containing(NVTX.table, "text", "rank=", "globalTid")
    registered = [key for key, text in export.strings.containing("rank=").items() if parse_setup(text)]
    if registered and "textId" in tables.columns(NVTX.table):
        uses = tables.frame(NVTX.table, {"tid": field("globalTid"), "id": field("textId")}, only=("textId", registered))
        texts += [(export.strings.get(at) or "", tid) for tid, at in uses.iter_rows()]
    labels: dict[int, tuple[int, str]] = {}
    for text, tid in texts:
        setup = parse_setup(text)
        if setup and tid is not None:
            labels.setdefault(tid >> 24, (setup.rank, text))
    return labels


def _with_context(export: Export) -> set[int]:
    """Processes that had a CUDA context: a launcher that merely asks how many devices there are has none."""
    pids = set()
    for table in ("TARGET_INFO_CUDA_CONTEXT_INFO", "TARGET_INFO_CUDA_NULL_STREAM", "TARGET_INFO_CUDA_STREAM"):
        for hw, vm, pid in export.tables.rows(table, field("hwId"), field("vmId"), field("processId")):
            if pid is not None:
                pids.add(((hw or 0) << 32) | ((vm or 0) << 24) | pid)
    return pids


def _with_calls(export: Export, keys: set[int]) -> set[int]:
    """Those of the processes that made CUDA calls. The calls are scanned only where the question arises at all."""
    return keys & _distinct(export, RUNTIME.table, "globalTid") if keys else set()


def _with_ranges(export: Export) -> set[int]:
    ranges = ("eventType", (PUSH_POP, START_END, MARK))
    threads = export.tables.frame(NVTX.table, {"thread": field("globalTid")}, only=ranges)["thread"]
    return {thread >> 24 for thread in threads.unique().drop_nulls()}


def _with_records(export: Export) -> set[int]:
    """Processes of which only the OS runtime, MPI or the like was traced."""
    columns = [(table, set(export.tables.columns(table))) for _, table in extra_tables(export)]
    named = [(table, c) for table, there in columns for c in ("globalTid", "globalPid") if c in there]
    return set().union(*(_distinct(export, table, column) for table, column in named))


def _distinct(export: Export, table: str, column: str) -> set[int]:
    return {value >> 24 for (value,) in export.tables.distinct(table, column) if value is not None}


def _hostname(export: Export) -> str | None:
    env = export.tables.rows("TARGET_INFO_SYSTEM_ENV", text_field("name"), text_field("value"))
    return next((value for name, value in env if name == "Hostname" and value), None)


def _described(export: Export) -> list[tuple[int | None, str | None, int | None, int | None]]:
    """Number, name, ordinal and multiprocessors of GPUs, as the description of the machine has them."""
    env = export.tables.rows("TARGET_INFO_SYSTEM_ENV", text_field("name"), text_field("value"))
    text = next((value for name, value in env if name == "GpuInfo" and value), "{}")
    try:
        gpus = json.loads(text).get("Gpus") or []
    except (ValueError, AttributeError, RecursionError):
        return []

    def number(gpu: dict[str, object], key: str) -> int | None:
        value = gpu.get(key)
        return value if isinstance(value, int) else None

    described = [gpu for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
    return [
        (number(gpu, "Id"), str(gpu["Name"]), number(gpu, "CuDevice"), number(gpu, "SmCount"))
        for gpu in described
        if gpu.get("Name")
    ]


class Gpus:
    """Names of devices. `deviceId` is the process's own ordinal: ranks that see one device each all say 0."""

    def __init__(self, export: Export) -> None:
        tables = export.tables
        listed = tables.rows("TARGET_INFO_GPU", field("id"), text_field("name"), field("cuDevice"), field("smCount"))
        gpus = listed or _described(export)
        # Graphics adapters that cannot run CUDA are listed too, all as device 0; they have no multiprocessors.
        cuda = [g for g in gpus if g[3]] or gpus
        self._by_id: dict[int | None, str] = {number: name for number, name, _, _ in gpus if name is not None}
        self._by_ordinal = {ordinal: number for number, _, ordinal, _ in reversed(cuda)}
        self._mapped: dict[tuple[int, int], int | None] = {
            (pid, ordinal): gpu
            for gpu, ordinal, pid in tables.rows(
                "TARGET_INFO_CUDA_DEVICE", field("gpuId"), field("cudaId"), field("pid")
            )
        }

    def number(self, pid: int, device: int) -> int | None:
        """The machine's number of a process's device."""
        return self._mapped.get((pid, device), self._by_ordinal.get(device))

    def certain(self, pid: int, device: int) -> int | None:
        """The same, only where the export says it of this very process: ordinals of masked devices mean nothing."""
        return self._mapped.get((pid, device))

    def name(self, pid: int, device: int) -> str | None:
        return self._by_id.get(self.number(pid, device))

    def only_device(self, pid: int) -> int | None:
        """The device of a process without GPU activity, where it saw just one."""
        seen = [ordinal for (owner, ordinal) in self._mapped if owner == pid]
        return seen[0] if len(seen) == 1 else None
