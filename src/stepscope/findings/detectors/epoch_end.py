"""Input stops every so many steps, or between steps: an epoch ends, and workers are started anew.

What it could save is what those steps take beyond the usual one, over all steps of the run. Workers that are too
slow for the GPU show the same way, with their number as the period.
"""

from __future__ import annotations

from stepscope.findings.case import Case
from stepscope.findings.evidence.episode import each, episode_finding, when
from stepscope.findings.finding import Finding

ID = "epoch-end"


def detect(case: Case) -> list[Finding]:
    return [
        episode_finding(
            case,
            e,
            ID,
            f"input stops for {each(e)} {when(e)}, as at the end of an epoch",
            "keep workers alive between epochs (persistent_workers=True) and let them prefetch the next one; if the "
            "period is the number of workers, they are too slow: more of them, or less work for each batch",
        )
        for e in case.episodes
        if e.cause == "input" and (e.every or e.between or e.why.anew)
    ]
