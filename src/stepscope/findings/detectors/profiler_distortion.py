"""The profiler changes what it measures: it writes down so much of the host that launching slows down, and the step.

A range for every torch op, or every Python function, takes longer than what it names. Shares of such a profile on the
GPU hold; its step, its idle time and its overlap do not. That is true whatever else is found, so it is said first. What
it could save is the step replayed with launches at the pace of an eager framework; other findings about the host
promise what is left after that. Synchronizations of the program are its own (`host-sync`).
"""

from __future__ import annotations

from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import guilty, hosts, stage_of
from stepscope.findings.evidence.instrumented import instrumented
from stepscope.findings.evidence.places import longest
from stepscope.findings.evidence.shown import LATE
from stepscope.findings.evidence.unprofiled import Cost, profiler_cost
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

DISTORTS = Threshold(
    25.0,
    "% of the step",
    "every profiler costs some: what nsys alone adds is 13; said first, it must be what matters most",
    ("h200/hf/hf1_rich.sqlite", "h200/train/eager.pt.trace.json.gz"),
)


ID = "profiler-distortion"


def remedy(case: Case) -> Change:
    """Launches as quick as without so much recording."""
    cost = case.once(profiler_cost)
    if cost is not None:
        return cost.change
    return Change(host_time_cut={r: i.overhead for r, i in case.once(instrumented).items()})


def detect(case: Case) -> list[Finding]:
    cost = case.once(profiler_cost)
    return _by_records(case) if cost is None else _by_steps(case, cost)


def _by_steps(case: Case, cost: Cost) -> list[Finding]:
    """Steps before recording were shorter."""
    saved = round(case.step_ns - cost.step_ns)
    if not case.material(saved, DISTORTS):
        return []
    ranks = guilty({r: h.pace_ns or 0.0 for r, h in hosts(case).items()})
    worst = max(ranks, key=lambda r: (hosts(case)[r].pace_ns or 0.0, -r))
    spans = {r: hosts(case)[r].quicker(cost.factor) for r in ranks}
    return [
        Finding(
            ID,
            title("profiler-distortion/by-steps", step_ns=about(cost.step_ns), step_ns2=about(case.step_ns)),
            saved,
            "certain",
            f"a launch takes {about(hosts(case)[worst].pace_ns or 0.0)} of host time on rank {worst}, about "
            f"{cost.factor:.1f} times as long as without the profiler, and the step {about(case.step_ns)}. The "
            "profiler inflates idle time, launches and the step, but not the GPU's own work",
            advice("profiler-distortion/by-steps"),
            ("critical-path", ""),
            ranks=ranks,
            figures=(case.step_ns,),
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in hosts(case)[r].longest_idle("host", "api")),
            covers={r: hosts(case)[r].gaps_touched(s.start, s.end) for r, s in spans.items()},
            bound=True,
            warns=True,
        )
    ]


def _by_records(case: Case) -> list[Finding]:
    """Nothing says how long steps are without it, but it wrote down so much that it must."""
    slow = case.once(instrumented)
    if not slow:
        return []
    saved = case.credit(ID)
    if not case.material(saved, DISTORTS):
        return []
    ranks = guilty({r: i.host.pace_ns or 0.0 for r, i in slow.items()})
    worst = max(ranks, key=lambda r: (slow[r].host.pace_ns or 0.0, -r))
    most = slow[worst]
    starved = most.host.idle_ns(*LATE)
    spans = {r: slow[r].host.quicker(float("inf")) for r in ranks}
    return [
        Finding(
            ID,
            title("profiler-distortion/by-records", what=most.what),
            saved,
            "likely",
            f"on rank {worst} it writes {most.per_launch:.1f} records per launch, and a launch takes "
            f"{about(most.host.pace_ns or 0.0)} of host time: the GPU starves for {about(starved)} of the step. The "
            "profiler inflates idle time, launches and the step, but not the GPU's own work",
            advice("profiler-distortion/by-records"),
            ("launches", "--by rank"),
            ranks=ranks,
            figures=(starved,),
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in slow[r].host.longest_idle("host", "api")),
            covers={r: slow[r].host.gaps_touched(s.start, s.end) for r, s in spans.items()},
            bound=True,
            warns=True,
        )
    ]
