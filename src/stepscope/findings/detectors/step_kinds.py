"""Steps are of several kinds: some do other work than others, and take longer.

A gradient penalty every few steps, a rollout, the optimizer at the end of an accumulation. That is not a fault itself:
what it costs per step, over the run, is an upper bound of what it could save. Findings within such steps count by
how often they come.

A profiler that slows launches slows longer steps by more. Where the program's other steps do not say what they take
without it, they are replayed with launches that are as much quicker as they are in the usual step.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from stepscope.findings.case import Case
from stepscope.findings.evidence.episode import each, episode_finding, when
from stepscope.findings.evidence.unprofiled import slowed_ns
from stepscope.findings.finding import Finding
from stepscope.findings.run.episodes import Episode
from stepscope.findings.texts import advice, title

ID = "step-kinds"


def detect(case: Case) -> list[Finding]:
    kinds = [
        episode_finding(
            case,
            e,
            ID,
            title("step-kinds", each=each(e), when=f"{'between steps ' * e.between}{when(e)}"),
            advice("step-kinds"),
        )
        for e in (_unprofiled(case, e) for e in case.episodes if e.cause == "work")
    ]
    return [replace(f, bound=True, low_ns=None, high_ns=None) for f in kinds]


def _unprofiled(case: Case, e: Episode) -> Episode:
    """With what its steps take without the profiler, where nothing but the usual step tells."""
    longer = next((other for kind, _, other in case.others if kind.kind.name == e.kind), None)
    if longer is None or e.plain < 1.0:
        return e
    slowed = slowed_ns(longer) - slowed_ns(case)
    return msgspec.structs.replace(e, plain=max(1.0 - slowed / e.each_ns, 0.0)) if slowed > 0 else e
