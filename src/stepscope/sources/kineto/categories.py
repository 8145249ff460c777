"""Which table an event belongs to, by its phase and category, under the names of all versions of Kineto."""

from __future__ import annotations

import re
from enum import IntEnum


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
    MEMORY = 11
    COUNTER = 12
    METADATA = 13
    UNKNOWN = 14


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
    # Time of the GPU under a host annotation, and the span of the whole trace: neither is an activity.
    "gpu_user_annotation": Kind.IGNORED,
    "trace": Kind.IGNORED,
    "cuda_profiler_range": Kind.IGNORED,
    "external_correlation": Kind.IGNORED,
}
_PHASES = {"C": Kind.COUNTER, "M": Kind.METADATA}

#: Torch's own compilation, and its running of compiled code, among the host ops.
_COMPILE = re.compile(
    r"^(CompiledFunction|Torch-Compiled Region|TorchDynamo|Pregraph bytecode|AOTDispatcher|Inductor|torch\._dynamo)"
    r"|\(dynamo_timed\)$|^## Call CompiledFxGraph"
)
_GC = re.compile(r"^Python GC|^gc\.collect|^<built-in function collect>")


class Classifier:
    """Kinds of events; remembers each (phase, category, name-if-instant) it has seen."""

    def __init__(self) -> None:
        self._complete: dict[str, Kind] = {}

    def complete(self, category: str) -> Kind:
        """Kind of a complete event."""
        kind = self._complete.get(category)
        if kind is None:
            kind = self._complete[category] = _COMPLETE.get(category.lower(), Kind.UNKNOWN)
        return kind

    def other(self, phase: str, name: str) -> Kind:
        """Kind of an event of another phase. Flow arrows (s, t, f) are not needed: launches are found by correlation."""
        if name == "[memory]":
            return Kind.MEMORY
        return _PHASES.get(phase, Kind.IGNORED)


def host_kind(kind: Kind, name: str) -> str:
    """`schema.HOST_KIND` of a host event."""
    if _GC.search(name):
        return "gc"
    if kind is Kind.PYTHON:
        return "python"
    if kind is Kind.OTHER_HOST:
        return "other"
    return "compile" if _COMPILE.search(name) else "cpu_op"
