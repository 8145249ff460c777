"""Traces of shapes that no program should have, of any size: each has one thing by the thousands.

They are torch.profiler's format, which is quickest to write. Everything has GPU work and three steps around it, so that
every question has something to answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]
#: Microseconds of the whole trace.
SPAN = 1_000_000.0
_TID, _STREAM = 100, 7


def write(path: Path, events: Iterator[Event]) -> Path:
    """A trace of rank 0 with these events."""
    header = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2}}
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(header)[:-1] + ', "traceEvents": [\n')
        file.write(",\n".join(map(json.dumps, events)))
        file.write("\n]}\n")
    return path


def _range(name: str, start: float, end: float, tid: int = _TID, pid: int = 1) -> Event:
    times = {"ts": round(start, 3), "dur": round(end - start, 3)}
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": pid, "tid": tid, **times}


def _kernel(
    k: int, start: float, length: float, name: str = "gemm", stream: int = _STREAM, pid: int = 1, **args: Any
) -> Iterator[Event]:
    """A kernel and the call that launched it."""
    ids = {"correlation": k}
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": pid, "tid": _TID, "args": ids}
    yield call | {"ts": round(start, 3), "dur": 0.001}
    where = {"device": 0, "context": 1, "stream": stream, **ids, **args}
    gpu = {"ph": "X", "cat": "kernel", "name": name, "pid": 0 if pid == 1 else pid, "tid": stream, "args": where}
    yield gpu | {"ts": round(start + 0.002, 3), "dur": round(length, 3)}


def _steps(n: int = 3, pid: int = 1) -> Iterator[Event]:
    each = SPAN / n
    for k in range(n):
        yield _range(f"ProfilerStep#{k}", k * each, (k + 1) * each - 0.001, pid=pid)


def _work(n: int) -> Iterator[Event]:
    """Kernels, evenly, and every tenth an all-reduce on a stream of its own."""
    for k in range(n):
        start, length = SPAN * k / n, SPAN / n / 2
        yield from _kernel(k + 1, start, length) if k % 10 else _all_reduce(k + 1, start, length, "world", 70)


def _all_reduce(k: int, start: float, length: float, group: str, stream: int = _STREAM) -> Iterator[Event]:
    told: dict[str, Any] = {"Collective name": "allreduce", "Process Group Name": group, "Group size": 2}
    told |= {"In msg nelems": 1024, "dtype": "Float", "Process Group Ranks": "[0, 1]"}
    return _kernel(k, start, length, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", stream, **told)


def stacks(n: int) -> Iterator[Event]:
    """Ranges in stacks of a thousand."""
    yield from _steps()
    deep = min(1000, n)
    each = SPAN / (n // deep)
    for stack in range(n // deep):
        for k in range(deep):
            margin = each * 0.45 * k / deep
            yield _range(f"level {k}", stack * each + margin + 0.001, (stack + 1) * each - margin - 0.002)
    yield from _work(1000)


def stack(n: int) -> Iterator[Event]:
    """One stack of ranges, as deep as there are."""
    yield from _steps()
    for k in range(n):
        margin = SPAN * 0.1 * k / n
        yield _range(f"level {k % 100}", margin + 0.001, SPAN / 3 - margin - 0.001)
    yield from _work(1000)


def threads(n: int) -> Iterator[Event]:
    """Ranges, ten to a thread."""
    yield from _steps()
    for k in range(n):
        yield _range(f"part {k % 7}", SPAN * k / n, SPAN * (k + 0.9) / n, tid=1000 + k % max(n // 10, 1))
    yield from _work(1000)


def names(n: int) -> Iterator[Event]:
    """Ranges on one thread, none called as another."""
    yield from _steps()
    for k in range(n):
        yield _range(f"sample {k * 7919} of {chr(97 + k % 26)}{k}x", SPAN * k / n, SPAN * (k + 0.9) / n)
    yield from _work(1000)


def kernels(n: int) -> Iterator[Event]:
    """Kernels, none called as another."""
    yield from _steps()
    for k in range(n):
        yield from _kernel(k + 1, SPAN * k / n, SPAN / n / 2, name=f"void kernel_{k}<float, {k}>(float*)")


def streams(n: int) -> Iterator[Event]:
    """Kernels, each on a stream of its own."""
    yield from _steps()
    for k in range(n):
        yield from _kernel(k + 1, SPAN * k / n, SPAN / n / 2, stream=7 + k)


def steps(n: int) -> Iterator[Event]:
    """Steps of one kernel each."""
    yield from _steps(n)
    for k in range(n):
        yield from _kernel(k + 1, SPAN * (k + 0.1) / n, SPAN / n / 2)


def communicators(n: int) -> Iterator[Event]:
    """All-reduces, each of a process group of its own."""
    yield from _steps()
    for k in range(n):
        yield from _all_reduce(k + 1, SPAN * k / n, SPAN / n / 2, f"group {k}")


def processes(n: int) -> Iterator[Event]:
    """Processes of one kernel each, in one file."""
    for k in range(n):
        yield from _kernel(k + 1, SPAN * k / n, SPAN / n / 2, pid=1000 + k)


def one_name(n: int) -> Iterator[Event]:
    """A kernel whose name has so many characters, and a range of that."""
    yield from _steps()
    yield _range("r" * n, 0.001, SPAN / 2)
    yield from _kernel(1, 1.0, SPAN / 4, name="k" * n)
    yield from _work(100)


CASES: dict[str, Callable[[int], Iterator[Event]]] = {
    f.__name__: f for f in (stacks, stack, threads, names, kernels, streams, steps, communicators, processes, one_name)
}
