"""How long the steps of a captured run were, with the profiler and without it, from its manifest.

Where steps run into each other the time of one says little: spans of several, between two synchronizes, count where
there are any and their steps were alike. Else a step is the mean of its ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from math import sqrt
from statistics import fmean, median, median_low, stdev
from typing import Any

from stepscope.model.program import SETTLING, ProgramSteps

#: Beyond so many recorded steps a span before them held a checkpoint, or tried algorithms out.
_MORE = 1.5
#: Of spans of so many steps the host saw enough of them to say what the usual one takes: it was held up in the rest.
_SEVERAL = 8


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
        more = _holds_more(between, _spans(content, profiled=True)) or _holds_slow_steps(content, between)
        return _alone(content) if more else between
    return _settled(content)


def unprofiled_host(content: Mapping[str, Any]) -> float | None:
    """The median, ns, of what the host took for a step before recording began, where it did not wait for the GPU at its
    end; None where too few are left."""
    steps = _settled(content)
    return float(median(steps)) if steps else None


def _alone(content: Mapping[str, Any]) -> list[float]:
    """Steps that count, each as the host saw it, without those that held something else."""
    timed = program_steps(content)
    lengths = sorted(ns for ns, counts in zip(timed.lengths_ns, timed.counted, strict=True) if counts) if timed else []
    return [ns for ns in lengths if ns <= _MORE * median_low(lengths)]


def _holds_more(between: Sequence[float], under: Sequence[float]) -> bool:
    """Whether steps before recording were so long that they held something else: no profiler makes steps shorter."""
    return bool(under) and median(between) > _MORE * median(under)


def _holds_slow_steps(content: Mapping[str, Any], between: Sequence[float]) -> bool:
    """Whether a few slow steps make spans of several so long: all of them are longer than most steps were to the host.

    What the host takes is a step's length only in the mean of many.
    """
    spans = (content["captured"].get("spans") or {}).values()
    several = all(steps >= _SEVERAL for mine in spans for steps, _, under in mine if not under)
    usual = _alone(content)
    return several and len(usual) >= _SEVERAL and median(between) > _MORE * median_low(usual)


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


def program_steps(content: Mapping[str, Any]) -> ProgramSteps | None:
    """Every step of the program, recorded or not; None where none was timed.

    A step counts unless it settles, was recorded, or is beside a recording: torch.profiler warms up in the step before,
    and in the one after the GPU begins with nothing to do.
    """
    times, began = _by_rank(content)
    hooked = bool(content["captured"].get("hooks"))
    if hooked:  # a step begins where the last one ended: the gaps are the hooks' own work
        began = [None] * len(times)
    lengths = list(map(_periods, times, began))
    if not lengths or not lengths[0]:
        return None
    count = min(map(len, lengths))
    mean = [fmean(each) for each in zip(*(of[:count] for of in lengths), strict=True)]
    recorded = [any(each) for each in zip(*([p for _, p in of[:count]] for of in times), strict=True)]
    before = (*recorded[1:], False) if _warms_up(content) else (False,) * count
    beside = [a or b or c for a, b, c in zip(recorded, before, (False, *recorded), strict=False)]
    counted = [k >= SETTLING.count and not beside[k] for k in range(count)]
    return ProgramSteps(mean, recorded, counted, untimed=int(hooked))  # hooks begin with the first optimizer's step


def _by_rank(content: Mapping[str, Any]) -> tuple[list[list[tuple[int, bool]]], list[list[int] | None]]:
    """Steps of each rank, and when they began, where that is known."""
    captured = content["captured"]
    times, began = captured.get("step_ns") or {}, captured.get("step_began_ns") or {}
    return list(times.values()), [began.get(rank) for rank in times]


def _periods(steps: Sequence[tuple[int, bool]], began: Sequence[int] | None) -> list[float]:
    """From the end of the step before to its own end, so that what lies between two steps is in the second."""
    own = [float(ns) for ns, _ in steps]
    if began is None or len(began) != len(own):
        return own
    gaps = [b - (a + ns) for a, b, ns in zip(began, began[1:], own, strict=False)]
    return [ns + max(0.0, gap) for ns, gap in zip(own, [0.0, *gaps], strict=True)]


def _warms_up(content: Mapping[str, Any]) -> bool:
    return bool(content["scenario"].get("backend") == "torch")


def _settled(content: Mapping[str, Any]) -> list[float]:
    """Steps before recording began, but for the first and that in which the profiler warms up."""
    steps = _before(content)[SETTLING.count :]
    return steps[:-1] if _warms_up(content) else steps


def _before(content: Mapping[str, Any]) -> list[float]:
    """Steps before the first that was recorded."""
    times = (content["captured"].get("step_ns") or {}).values()
    mine = ([ns for ns, _ in takewhile(lambda step: not step[1], steps)] for steps in times)
    return [fmean(each) for each in zip(*mine, strict=False)]


def _spans(content: Mapping[str, Any], *, profiled: bool) -> list[float]:
    spans = (content["captured"].get("spans") or {}).values()
    return [ns / steps for mine in spans for steps, ns, under in mine if under is profiled and steps]


def _steps(content: Mapping[str, Any], *, profiled: bool) -> list[float]:
    times = (content["captured"].get("step_ns") or {}).values()
    mine = ([ns for ns, under in steps if under is profiled] for steps in times)
    return [fmean(each) for each in zip(*mine, strict=False)]
