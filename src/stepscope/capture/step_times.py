"""How long the steps of a captured run were, with the profiler and without it, from its manifest.

Where steps run into each other the time of one says little: spans of several, between two synchronizes, count where
there are any. Else a step is the mean of its ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, median
from typing import Any

#: Steps that settle: first uses, and memory that is taken for the first time.
SETTLING = 2


def unprofiled(content: Mapping[str, Any]) -> float | None:
    """The median, ns, of steps that were timed apart, else of those before recording began.

    In the last before it records, torch.profiler warms up. None where too few are left.
    """
    if apart := content["captured"].get("unprofiled_step_ns"):
        return float(median(apart))
    if between := _spans(content, profiled=False):
        return median(between)
    steps = _steps(content, profiled=False)[SETTLING:]
    if content["scenario"].get("backend") == "torch":
        steps = steps[:-1]
    return median(steps) if steps else None


def profiled(content: Mapping[str, Any]) -> float | None:
    """The median, ns, of the steps that were recorded."""
    steps = _spans(content, profiled=True) or _steps(content, profiled=True)
    return median(steps) if steps else None


def slowdown(profiled_ns: float | None, unprofiled_ns: float | None) -> float | None:
    """A recorded step in unprofiled ones; None where either is not known."""
    return profiled_ns / max(1.0, unprofiled_ns) if profiled_ns and unprofiled_ns else None


def _spans(content: Mapping[str, Any], *, profiled: bool) -> list[float]:
    spans = (content["captured"].get("spans") or {}).values()
    return [ns / steps for mine in spans for steps, ns, under in mine if under is profiled and steps]


def _steps(content: Mapping[str, Any], *, profiled: bool) -> list[float]:
    times = (content["captured"].get("step_ns") or {}).values()
    mine = ([ns for ns, under in steps if under is profiled] for steps in times)
    return [fmean(each) for each in zip(*mine, strict=False)]
