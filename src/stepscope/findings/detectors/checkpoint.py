"""Training stops while a checkpoint is written: weights go to the host and to files, and the GPU has nothing to do.

It is told by ranges that name it, by calls of the OS that write, or by many copies to the host that other steps do not
have. What it could save is what those steps take beyond the usual one, over all steps of the run.
"""

from __future__ import annotations

from stepscope.findings.case import Case
from stepscope.findings.evidence.episode import each, episode_finding, when
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title

ID = "checkpoint"


def detect(case: Case) -> list[Finding]:
    return [
        episode_finding(
            case,
            e,
            ID,
            title("checkpoint", each=each(e), when=when(e)),
            advice("checkpoint"),
        )
        for e in case.episodes
        if e.cause == "checkpoint"
    ]
