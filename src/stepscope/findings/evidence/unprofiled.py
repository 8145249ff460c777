"""What the profiler costs, where steps were timed without it: nothing of that is the program's to give back.

A profiler slows the host: each launch takes longer. So the step is replayed with launches that much quicker, on all
ranks alike, that it is as long as steps were without the profiler.

Steps are timed from one synchronization to another, so that the first of them begins with a GPU that has nothing to do.
A program whose host runs ahead does not wait for that in its other steps: these take what the host takes, as it was
seen without synchronizations, or what the GPU takes when it is never kept waiting, whichever is more. A host that waits
for the GPU in every step never gets that far ahead: so short is only its step behind a synchronization, and what the
others take is replayed.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import hosts
from stepscope.findings.evidence.launching import quicker
from stepscope.findings.run.episodes import usual_length
from stepscope.model.threshold import Threshold

TORCH_ADDS = Threshold(
    8.0,
    "µs per launch",
    "8.7 in the step of a transformers Trainer that the host fills, 132 ms with and 101 without; where `capture run` "
    "timed steps before recording, 4.6 to 12.4",
    ("h200/hf/hf1_healthy.rank0.pt.trace.json.gz", "tests/data/pairs"),
)
NSYS_ADDS = Threshold(
    4.0,
    "µs per launch",
    "3.7 in the same step, 114 ms with and 101 without; more on hosts that are slow otherwise, too",
    ("h200/hf/hf1_healthy.sqlite", "tests/data/pairs"),
)
SLOWED_STEP = Threshold(
    1.02,
    "times the step before recording",
    "below that, nothing is worth undoing",
    ("tests/data/moe_reference", "tests/data/promises"),
)
ALIKE_STEPS = Threshold(
    90.0,
    "% of the step",
    "steps of one run differ by up to 7 % by themselves; a recorded one was 15 % longer than launching explains",
    ("tests/data/moe_reference", "tests/data/promises"),
)
WORST_PROFILER = Threshold(
    3.0,
    "times as long per launch",
    "torch.profiler makes it 2.1 to 2.5 times as long in loops of small ops; what is beyond is not launching",
    ("tests/data/promises", "tests/data/moe_reference"),
)


class Cost(Struct, frozen=True):
    """Length of a step without the profiler, how many times as slowly hosts launch under it, and what undoes that."""

    step_ns: float
    factor: float
    change: Change
    #: what of a promise is left: where quicker launches alone do not make the step as short, its shares still hold
    share: float = 1.0


def profiler_cost(case: Case) -> Cost | None:
    """What is known of it; None where nothing is.

    A host that runs ahead is over with a step long before the GPU is: where steps were only timed by such a host, that
    says little of steps. None is shorter than what the GPU computes in it.
    """
    plain = case.profile.unprofiled_step_ns
    if not plain or case.kind != "step":
        return None
    if case.usual is not None:
        return _as_usual(case, case.usual)
    if plain < ALIKE_STEPS.share * _computes(case):
        return None
    running = _running(case, plain)
    # Against steps of the run, the usual one is held; against what this very step takes when fed, itself.
    usual = min(case.step_ns, usual_length(case.profile) or case.step_ns) if running == plain else case.step_ns
    if usual <= SLOWED_STEP.value * running or not hosts(case):
        return Cost(max(plain, running), 1.0, Change())
    wanted = running * case.replay.plain / case.step_ns
    factor = _factor(case, wanted, case.replay.run)
    change = _quicker(case, factor)
    share = wanted / max(case.replay.run(change), 1)
    return Cost(max(plain, running), factor, change, share if share < ALIKE_STEPS.share else 1.0)


def _factor(case: Case, wanted: float, length: Callable[[Change], int]) -> float:
    """How many times as quick launches must be for the step to be as long as that."""
    low, high = 1.0, WORST_PROFILER.value
    for _ in range(8):  # between 1 and 3, to 0.4 %
        factor = (low * high) ** 0.5
        low, high = (factor, high) if length(_quicker(case, factor)) > wanted else (low, factor)
    return high


def _as_usual(case: Case, usual: Case) -> Cost | None:
    """Of a step of another kind, which was not timed: its launches are slowed as those of the usual step are."""
    cost = usual.once(profiler_cost)
    if cost is None or cost.factor <= 1 or not hosts(case):
        return None if cost is None else Cost(case.step_ns, 1.0, Change())
    change = _quicker(case, cost.factor)
    return Cost(case.replay.run(change) * case.step_ns / case.replay.plain, cost.factor, change)


def slowed_ns(case: Case) -> int:
    """What the profiler adds to the step, where steps were timed without it: the GPU idles for it."""
    cost = case.once(profiler_cost)
    return case.replay.saved(cost.change) if cost is not None and cost.factor > 1 else 0


def _computes(case: Case) -> int:
    """What the GPU that computes longest does so for."""
    return max((h.parts.compute.length() for h in hosts(case).values()), default=0)


def _running(case: Case, plain: float) -> float:
    """A step among others, of one that was timed between synchronizations. No profiler makes the GPU's own work longer:
    a step is never shorter than what its GPU computes."""
    own = _computes(case)
    host = case.profile.unprofiled_host_ns
    if host is None or host >= plain or not own:
        return max(plain, own)
    scale = case.step_ns / case.replay.plain
    fed = case.replay.run(_quicker(case, WORST_PROFILER.value)) * scale
    if host >= fed or not case.replay.waiting:
        others = max(host, fed)
    elif case.replay.alone(Change()) * scale <= plain:
        others = case.step_ns
    else:
        others = case.replay.run(_quicker(case, _factor(case, plain / scale, case.replay.alone))) * scale
    return max(own, min(plain, others))


def added_ns(case: Case) -> int:
    """Host time that the profiler adds to a launch, where no step was timed without it: what it usually adds."""
    if case.profile.unprofiled_step_ns:
        return 0  # `profiler_cost` knows what it adds here
    by_torch = any(source.format.startswith("kineto") for source in case.profile.sources)
    return (TORCH_ADDS if by_torch else NSYS_ADDS).ns


def _quicker(case: Case, factor: float) -> Change:
    """All hosts launch so many times as fast."""
    return quicker(case, dict.fromkeys(hosts(case), factor))
