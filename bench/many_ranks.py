"""A job of very many tiny ranks, a torch.profiler trace each: what a question costs per file, not per event.

Every rank has three steps of sixteen kernels, an all-reduce of its node of eight and two of all ranks in each; `wide`
makes ranks of 5,000 ops. Every thousandth rank is late, and every node has a clock of its own, so that there is
something to find and to align.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

NODE = 8
_KERNEL_US, _LATE_US = 42.0, 150.0
_NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
#: Different makes of wide ranks, and what stands in them for what is a rank's own.
_MAKES, _MARK = 16, "@@"


class Shape(NamedTuple):
    """How much a rank does."""

    steps: int
    kernels: int  # per step
    collectives: int  # per step, of the node and of all ranks each; one more ends the step


TINY = Shape(steps=3, kernels=16, collectives=1)
#: 5,000 ops, of which 205 communicate.
WIDE = Shape(steps=5, kernels=959, collectives=20)


def job(folder: Path, ranks: int) -> Path:
    """The traces of so many ranks in a folder, made where they are not there yet."""
    return _made(folder, ranks, lambda rank: json.dumps(_trace(rank, ranks, TINY)))


def wide(folder: Path, ranks: int) -> Path:
    """The same of ranks with 5,000 ops each. What differs between ranks of one make is patched in: times are alike."""
    texts: dict[tuple[int, bool], str] = {}

    def text(rank: int) -> str:
        make = rank % _MAKES, _is_late(rank)
        if make not in texts:
            texts[make] = json.dumps(_trace(rank, ranks, WIDE, mark=_MARK))
        node, of = rank // NODE, min(NODE, ranks - NODE * (rank // NODE))
        patched = texts[make].replace(f'"{_MARK} size"', str(of)).replace(f"{_MARK} node", str(node))
        return patched.replace(f'"{_MARK} pid"', str(1000 + rank)).replace(f'"{_MARK} rank"', str(rank))

    return _made(folder, ranks, text)


def _made(folder: Path, ranks: int, text: Callable[[int], str]) -> Path:
    if not folder.exists():
        part = folder.with_name(folder.name + ".part")
        part.mkdir(parents=True, exist_ok=True)
        for rank in range(ranks):
            (part / f"rank{rank}.pt.trace.json").write_text(text(rank), encoding="utf-8")
        part.rename(folder)
    return folder


def _is_late(rank: int) -> bool:
    return rank % 1000 == 5


def _trace(rank: int, ranks: int, shape: Shape, mark: str = "") -> dict[str, Any]:
    """The trace of one rank; with a `mark`, what depends on the rank alone is left to be patched."""
    node, rng = rank // NODE, random.Random(rank)
    clock = 100.0 * random.Random(-node).random() if node else 0.0
    late = _LATE_US if _is_late(rank) else 0.0
    events: list[dict[str, Any]] = []
    of_host: Any = f"{mark} pid" if mark else 1000 + rank
    named = f"{mark} node" if mark else str(node)
    members: Any = f"{mark} size" if mark else min(NODE, ranks - NODE * node)

    def add(cat: str, name: str, start: float, length: float, tid: int, **args: Any) -> None:
        times = {"ts": round(start + clock, 3), "dur": round(length, 3)}
        pid = 0 if cat == "kernel" else of_host
        events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "args": args, **times})

    def launch(name: str, call: float, start: float, end: float, stream: int, **args: Any) -> None:
        told = {"correlation": len(events) + 1}
        add("cuda_runtime", "cudaLaunchKernel", call, 2.0, 1, **told)
        add("kernel", name, start, end - start, stream, device=0, stream=stream, **told, **args)

    def all_reduce(call: float, start: float, end: float, group: str, size: Any) -> None:
        told = {"Collective name": "allreduce", "Process Group Name": group, "Group size": size}
        launch(_NCCL, call, start, end, 20, **told, **{"In msg nelems": 1 << 20, "dtype": "Float"})

    for step in range(shape.steps):
        length = shape.kernels * _KERNEL_US + 328.0 + _LATE_US
        begin = step * length
        add("user_annotation", f"ProfilerStep#{step}", begin, length - 1.0, 1)
        at = begin + 20.0
        for k in range(shape.kernels):
            took = 40.0 + rng.random() + (late if k == shape.kernels - 1 else 0.0)
            launch(f"gemm_{k % 4}", begin + 4.0 * k, at, at + took, 7)
            at += took + 1.0
        done = begin + 20.0 + shape.kernels * _KERNEL_US
        calls = begin + 4.0 * shape.kernels + 6.0
        for n in range(shape.collectives):
            call, start = calls + 20.0 * n, calls + 130.0 + 180.0 * n
            all_reduce(call, start, start + 60.0, f"node {named}", members)
            all_reduce(call + 10.0, start + 100.0, start + 180.0, "world", ranks)
        all_reduce(calls + 20.0 * shape.collectives, at, done + _LATE_US + 30.0, "world", ranks)
    about = {"backend": "nccl", "rank": f"{mark} rank" if mark else rank, "world_size": ranks}
    return {"schemaVersion": 1, "distributedInfo": about, "host_name": f"node{named}", "traceEvents": events}
