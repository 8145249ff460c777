"""Measured kernels by hand: a profile of what Nsight Compute would have said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fake import FakeSource
from stepscope.api.profile import Profile

Metrics = Mapping[str, float]


def source(kernels: Mapping[str, Metrics], dur_ns: int = 10_000, **launch: Any) -> FakeSource:
    """A report of these kernels, each of one name, with its metrics."""
    shape = {"grid_x": 1024, "grid_y": 1, "grid_z": 1, "block_x": 256, "block_y": 1, "block_z": 1}
    rows = [
        {"kernel": at, "name": name.partition("#")[0], "device": 0, "stream": 7, "dur_ns": dur_ns, "gpu": "NVIDIA H200"}
        | shape
        | launch
        for at, name in enumerate(kernels)
    ]
    metrics = [
        {"kernel": at, "name": metric, "unit": None, "value": float(value), "text": None}
        for at, measured_ in enumerate(kernels.values())
        for metric, value in measured_.items()
    ]
    tables = {"measured": rows, **({"metrics": metrics} if metrics else {})}
    return FakeSource(tables, path=Path("fake.ncu-rep"), format="ncu-rep")


def measured(kernels: Mapping[str, Metrics], dur_ns: int = 10_000, **launch: Any) -> Profile:
    """A profile of such a report alone."""
    return Profile([source(kernels, dur_ns, **launch)])
