"""What the profiler costs, where steps were timed without it: nothing of that is the program's to give back.

A profiler slows the host: each launch takes longer. So the step is replayed with launches that much quicker, on all
ranks alike, that it is as long as steps were without the profiler.
"""

from __future__ import annotations

from msgspec import Struct

from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import hosts
from stepscope.findings.evidence.launching import quicker
from stepscope.findings.run.episodes import usual_length
from stepscope.findings.thresholds import ALIKE_STEPS, NSYS_ADDS, SLOWED_STEP, TORCH_ADDS, WORST_PROFILER


class Cost(Struct, frozen=True):
    """Length of a step without the profiler, how many times as slowly hosts launch under it, and what undoes that."""

    step_ns: float
    factor: float
    change: Change
    #: what of a promise is left: where quicker launches alone do not make the step as short, its shares still hold
    share: float = 1.0


def profiler_cost(case: Case) -> Cost | None:
    """What is known of it; None where nothing is."""
    plain = case.profile.unprofiled_step_ns
    if not plain or case.kind != "step":
        return None
    if min(case.step_ns, usual_length(case.profile) or case.step_ns) <= SLOWED_STEP.value * plain or not hosts(case):
        return Cost(plain, 1.0, Change())
    wanted = plain * case.replay.plain / case.step_ns
    low, high = 1.0, WORST_PROFILER.value
    for _ in range(8):  # between 1 and 3, to 0.4 %
        factor = (low * high) ** 0.5
        low, high = (factor, high) if case.replay.run(_quicker(case, factor)) > wanted else (low, factor)
    change = _quicker(case, high)
    share = wanted / max(case.replay.run(change), 1)
    return Cost(plain, high, change, share if share < ALIKE_STEPS.share else 1.0)


def added_ns(case: Case) -> int:
    """Host time that the profiler adds to a launch, where no step was timed without it: what it usually adds."""
    if case.profile.unprofiled_step_ns:
        return 0  # `profiler_cost` knows what it adds here
    by_torch = any(source.format.startswith("kineto") for source in case.profile.sources)
    return (TORCH_ADDS if by_torch else NSYS_ADDS).ns


def _quicker(case: Case, factor: float) -> Change:
    """All hosts launch so many times as fast."""
    return quicker(case, dict.fromkeys(hosts(case), factor))
