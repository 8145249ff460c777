"""Which table an event belongs to, by its phase and category, under the names of all versions of Kineto."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache


class Kind(IntEnum):
    """What an event is to the model."""

    IGNORED = 0
    KERNEL = 1
    MEMCPY = 2
    MEMSET = 3
    RUNTIME = 4
    DRIVER = 5
    RANGE = 6
    CPU_OP = 7
    PYTHON = 8
    OTHER_HOST = 9
    SYNC = 10
    EVENT_RECORD = 11
    MEMORY = 12
    COUNTER = 13
    METADATA = 14
    UNKNOWN = 15
    IDLE_NODE = 16


#: Nodes of CUDA graphs that do no work: records of events, callbacks of the host.
NO_WORK = ("graph_event_node", "graph_host_node")
#: Categories of complete events (phase X), in lower case: old Kineto wrote `Kernel`, `Memcpy`, `Runtime`, `Operator`.
_COMPLETE = {
    "kernel": Kind.KERNEL,
    "concurrent_kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "memset": Kind.MEMSET,
    "cuda_runtime": Kind.RUNTIME,
    "hip_runtime": Kind.RUNTIME,
    "runtime": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "privateuse1_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.DRIVER,
    "hip_driver": Kind.DRIVER,
    "driver": Kind.DRIVER,
    "xpu_driver": Kind.DRIVER,
    "privateuse1_driver": Kind.DRIVER,
    "user_annotation": Kind.RANGE,
    "cpu_op": Kind.CPU_OP,
    "operator": Kind.CPU_OP,
    "python_function": Kind.PYTHON,
    "overhead": Kind.OTHER_HOST,
    "python_gc": Kind.OTHER_HOST,
    "cuda_sync": Kind.SYNC,
    "cuda_event": Kind.EVENT_RECORD,
    **dict.fromkeys(NO_WORK, Kind.IDLE_NODE),
    # Time of the GPU under a host annotation, and the span of the whole trace: neither is an activity.
    "gpu_user_annotation": Kind.IGNORED,
    "trace": Kind.IGNORED,
    "cuda_profiler_range": Kind.IGNORED,
    "external_correlation": Kind.IGNORED,
}
_PHASES = {"C": Kind.COUNTER, "M": Kind.METADATA}
#: Instants among which torch writes its allocator samples, `[memory]`.
_MEMORY_SAMPLES = {"cpu_instant_event": Kind.MEMORY}

#: Torch's own compilation, and its running of compiled code, among the host ops.
_COMPILE = re.compile(
    r"^(CompiledFunction|Torch-Compiled Region|TorchDynamo|Pregraph bytecode|AOTDispatcher|Inductor|torch\._dynamo)"
    r"|\(dynamo_timed\)$|^## Call CompiledFxGraph"
)
_GC = re.compile(r"^Python GC|^gc\.collect|^<built-in function collect>")


class Kinds(dict[tuple[str, str], int]):
    """Kind of an event by (phase, category); each pair is looked at once, the rest is a lookup in C."""

    def __missing__(self, key: tuple[str, str]) -> int:
        phase, category = key
        if phase == "X":
            kind = _COMPLETE.get(category.lower(), Kind.UNKNOWN)
        else:
            # Flow arrows (s, t, f) are not needed: launches are found by correlation.
            kind = _MEMORY_SAMPLES.get(category, Kind.IGNORED) if phase in "iI" else _PHASES.get(phase, Kind.IGNORED)
        self[key] = int(kind)
        return int(kind)


@lru_cache(maxsize=1 << 16)
def host_kind(kind: Kind, name: str) -> str:
    """`schema.HOST_KIND` of a host event."""
    if _GC.search(name):
        return "gc"
    if kind is Kind.PYTHON:
        return "python"
    if kind is Kind.OTHER_HOST:
        return "other"
    return "compile" if _COMPILE.search(name) else "cpu_op"
