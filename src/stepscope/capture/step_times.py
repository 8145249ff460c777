"""How long the steps of a captured run were, with the profiler and without it, from its manifest.

Where steps run into each other the time of one says little: spans of several, between two synchronizes, count where
there are any. Else a step is the mean of its ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import fmean, median, stdev
from typing import Any

#: Steps that settle: first uses, and memory that is taken for the first time.
SETTLING = 2


def unprofiled(content: Mapping[str, Any]) -> float | None:
    """The median, ns, of `unprofiled_times`; None where too few are left."""
    times = unprofiled_times(content)
    return float(median(times)) if times else None


def unprofiled_times(content: Mapping[str, Any]) -> list[float]:
    """Steps, ns, that were timed apart, else those before recording began.

    In the last before it records, torch.profiler warms up.
    """
    if apart := content["captured"].get("unprofiled_step_ns"):
        return list(map(float, apart))
    if between := _spans(content, profiled=False):
        return between
    steps = _steps(content, profiled=False)[SETTLING:]
    return steps[:-1] if content["scenario"].get("backend") == "torch" else steps


def profiled(content: Mapping[str, Any]) -> float | None:
    """The median, ns, of the steps that were recorded."""
    times = profiled_times(content)
    return median(times) if times else None


def profiled_times(content: Mapping[str, Any]) -> list[float]:
    """The steps, ns, that were recorded."""
    return _spans(content, profiled=True) or _steps(content, profiled=True)


def slowdown(profiled_ns: float | None, unprofiled_ns: float | None) -> float | None:
    """A recorded step in unprofiled ones; None where either is not known."""
    return profiled_ns / max(1.0, unprofiled_ns) if profiled_ns and unprofiled_ns else None


def slowdown_range(profiled: Sequence[float], unprofiled: Sequence[float]) -> tuple[float, float] | None:
    """Between what the slowdown lies, as far as steps like these tell: two standard errors; None where nothing does.

    A single step is taken to vary as those of the other side do.
    """
    if not profiled or not unprofiled or max(len(profiled), len(unprofiled)) < 2:
        return None
    spread = [stdev(side) if len(side) > 1 else None for side in (profiled, unprofiled)]
    sure = [(s if s is not None else (spread[0] or spread[1] or 0.0)) for s in spread]
    error = sqrt(sure[0] ** 2 / len(profiled) + sure[1] ** 2 / len(unprofiled))
    whole = max(1.0, float(median(unprofiled)))
    ratio = float(median(profiled)) / whole
    return max(0.0, ratio - 2.0 * error / whole), ratio + 2.0 * error / whole


def _spans(content: Mapping[str, Any], *, profiled: bool) -> list[float]:
    spans = (content["captured"].get("spans") or {}).values()
    return [ns / steps for mine in spans for steps, ns, under in mine if under is profiled and steps]


def _steps(content: Mapping[str, Any], *, profiled: bool) -> list[float]:
    times = (content["captured"].get("step_ns") or {}).values()
    mine = ([ns for ns, under in steps if under is profiled] for steps in times)
    return [fmean(each) for each in zip(*mine, strict=False)]
