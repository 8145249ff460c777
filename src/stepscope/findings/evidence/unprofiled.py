"""What the profiler costs, where steps were timed without it: nothing of that is the program's to give back.

A profiler slows the host: each launch takes longer. So the step is replayed with launches that much quicker, on all
ranks alike, that it is as long as steps were without the profiler.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import hosts
from stepscope.findings.thresholds import STEPS_DIFFER, WORST_PROFILER

#: Halvings of the factor: 3 becomes 1.004.
_HALVINGS = 8


@dataclass(frozen=True)
class Cost:
    """Length of a step without the profiler, how many times as slowly hosts launch under it, and what undoes that."""

    step_ns: float
    factor: float
    change: Change


def profiler_cost(case: Case) -> Cost | None:
    """What is known of it; None where nothing is."""
    plain = case.profile.unprofiled_step_ns
    if not plain or case.kind != "step":
        return None
    if case.step_ns <= STEPS_DIFFER.value * plain or not hosts(case):
        return Cost(plain, 1.0, Change())
    wanted = plain * case.replay.plain / case.step_ns
    low, high = 1.0, WORST_PROFILER.value
    for _ in range(_HALVINGS):
        factor = (low * high) ** 0.5
        low, high = (factor, high) if case.replay.run(_quicker(case, factor)) > wanted else (low, factor)
    return Cost(plain, high, _quicker(case, high))


def _quicker(case: Case, factor: float) -> Change:
    return Change(host_time_cut={r: h.quicker(factor) for r, h in hosts(case).items()})
