"""Input stops every so many steps, or between steps: an epoch ends, and workers are started anew.

What it could save is what those steps take beyond the usual one, over all steps of the run. Workers that are too
slow for the GPU show the same way, with their number as the period.
"""

from __future__ import annotations

from stepscope.findings.case import Case
from stepscope.findings.evidence.episode import each, episode_finding, when
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title

ID = "epoch-end"


def detect(case: Case) -> list[Finding]:
    return [
        episode_finding(
            case,
            e,
            ID,
            title("epoch-end", each=each(e), when=when(e)),
            advice("epoch-end"),
        )
        for e in case.episodes
        if e.cause == "input" and (e.every or e.between or e.why.anew)
    ]
