"""How large a capture will be: a model of the events of a step.

Figures per layer and micro-batch, forward and backward together, are those of DualPipeV with grouped GEMMs. Bytes per
event are measured on our H200 captures (docs/capture.md). Expect a factor of two either way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stepscope.errors import BadInput

#: Kernels of one layer for one micro-batch, forward and backward.
_KERNELS_DENSE = 90
_KERNELS_MOE = 170
_COMM_MOE = 6  # two all-to-alls each way, and two of metadata
_COMM_RING = 3  # per further context-parallel rank
_COMM_TENSOR = 4
#: Host calls for each kernel: the launch, event records and waits, queries.
_CALLS = 4.5
_RANGES = 12
_NCCL_RANGES = 3
#: Bytes of one event. A report is compressed; its SQLite export is not; a torch trace is gzipped JSON, with the
#: framework's operators beside the events that are counted here.
BYTES = {"report": 20, "export": 51, "torch": 40}
_BASE = {"report": 150_000, "export": 400_000, "torch": 20_000}
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30}


@dataclass(frozen=True)
class Events:
    """Of one rank in one step."""

    kernels: int
    calls: int
    ranges: int

    @property
    def total(self) -> int:
        return self.kernels + self.calls + self.ranges


def events(layers: float, dense: float, micro_batches: int, ep: int, cp: int, tp: int) -> Events:
    """Of a rank that holds so many layers, `dense` of them without experts."""
    moe = max(0.0, layers - dense)
    comm = _COMM_MOE * moe * (ep > 1) + (_COMM_RING * (cp - 1) + _COMM_TENSOR * (tp > 1)) * layers
    kernels = (_KERNELS_MOE * moe + _KERNELS_DENSE * (layers - moe) + comm) * micro_batches
    ranges = (_RANGES * layers + _NCCL_RANGES * comm) * micro_batches
    return Events(round(kernels), round(kernels * _CALLS), round(ranges))


def file_bytes(total_events: int, kind: str) -> int:
    """A file of that kind with so many events."""
    return _BASE[kind] + total_events * BYTES[kind]


def parse_size(text: str, option: str = "--max-size") -> int:
    """`200MB`, `1.5 GiB`, `800k`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", text, re.IGNORECASE)
    if match is None or match[2].upper() not in _UNITS:
        raise BadInput(f"{option} {text!r} is not a size", "write it as 200MB or 1.5GiB")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def show_size(size: int) -> str:
    """A size to read."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} B"
