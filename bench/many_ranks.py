"""A job of very many tiny ranks, a torch.profiler trace each: what a question costs per file, not per event.

Every rank has three steps of sixteen kernels, an all-reduce of its node of eight and two of all ranks in each. Every
thousandth rank is late, and every node has a clock of its own, so that there is something to find and to align.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

STEPS, KERNELS, NODE = 3, 16, 8
_STEP_US, _LATE_US = 1000.0, 150.0
_NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def job(folder: Path, ranks: int) -> Path:
    """The traces of so many ranks in a folder, made where they are not there yet."""
    if not folder.exists():
        part = folder.with_name(folder.name + ".part")
        part.mkdir(parents=True, exist_ok=True)
        for rank in range(ranks):
            (part / f"rank{rank}.pt.trace.json").write_text(json.dumps(_trace(rank, ranks)), encoding="utf-8")
        part.rename(folder)
    return folder


def _trace(rank: int, ranks: int) -> dict[str, Any]:
    node, rng = rank // NODE, random.Random(rank)
    clock = 100.0 * random.Random(-node).random() if node else 0.0
    late = _LATE_US if rank % 1000 == 5 else 0.0
    events: list[dict[str, Any]] = []

    def add(cat: str, name: str, start: float, length: float, tid: int, **args: Any) -> None:
        times = {"ts": round(start + clock, 3), "dur": round(length, 3)}
        pid = 0 if cat == "kernel" else 1000 + rank
        events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "args": args, **times})

    def launch(name: str, call: float, start: float, end: float, stream: int, **args: Any) -> None:
        told = {"correlation": len(events) + 1}
        add("cuda_runtime", "cudaLaunchKernel", call, 2.0, 1, **told)
        add("kernel", name, start, end - start, stream, device=0, stream=stream, **told, **args)

    def all_reduce(call: float, start: float, end: float, group: str, size: int) -> None:
        told = {"Collective name": "allreduce", "Process Group Name": group, "Group size": size}
        launch(_NCCL, call, start, end, 20, **told, **{"In msg nelems": 1 << 20, "dtype": "Float"})

    for step in range(STEPS):
        begin = step * (_STEP_US + _LATE_US)
        add("user_annotation", f"ProfilerStep#{step}", begin, _STEP_US + _LATE_US - 1.0, 1)
        at = begin + 20.0
        for k in range(KERNELS):
            length = 40.0 + rng.random() + (late if k == KERNELS - 1 else 0.0)
            launch(f"gemm_{k % 4}", begin + 4.0 * k, at, at + length, 7)
            at += length + 1.0
        done = begin + 20.0 + KERNELS * 42.0
        all_reduce(begin + 70.0, begin + 200.0, begin + 260.0, f"node {node}", min(NODE, ranks - NODE * node))
        all_reduce(begin + 80.0, begin + 300.0, begin + 380.0, "world", ranks)
        all_reduce(begin + 90.0, at, done + _LATE_US + 30.0, "world", ranks)
    about = {"backend": "nccl", "rank": rank, "world_size": ranks}
    return {"schemaVersion": 1, "distributedInfo": about, "host_name": f"node{node}", "traceEvents": events}
