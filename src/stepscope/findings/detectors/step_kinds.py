"""Steps are of several kinds: some do other work than others, and take longer.

A gradient penalty every few steps, a rollout, the optimizer at the end of an accumulation. That is not a fault itself:
what it costs per step, over the run, is an upper bound of what it could save. Findings within such steps count by
how often they come.
"""

from __future__ import annotations

from dataclasses import replace

from stepscope.findings.case import Case
from stepscope.findings.evidence.episode import each, episode_finding, when
from stepscope.findings.finding import Finding

ID = "step-kinds"


def detect(case: Case) -> list[Finding]:
    found = [
        episode_finding(
            case,
            e,
            ID,
            f"other work takes {each(e)} {'between steps ' * e.between}{when(e)}",
            "see what those steps do that the others do not (`stepscope kernels --index N` of both), and whether they "
            "need it so often",
        )
        for e in case.episodes
        if e.cause == "work"
    ]
    return [replace(f, bound=True, low_ns=None, high_ns=None) for f in found]
