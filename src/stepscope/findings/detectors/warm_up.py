"""The capture holds warm-up: code is compiled, loaded or tried out in some of its steps, or its first ones are longer.

A long run pays that once. What it costs is what those steps take beyond the usual one, over the steps of this capture;
other findings are about the usual step.
"""

from __future__ import annotations

from stepscope.findings.case import Case
from stepscope.findings.evidence.episode import each, episode_finding, warms_up, when
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title

ID = "warm-up"

_KINDS = ("compile", "trial")


def detect(case: Case) -> list[Finding]:
    return [
        episode_finding(
            case,
            e,
            ID,
            title(f"warm-up/{e.cause if e.cause in _KINDS else 'settling'}", each=each(e), when=when(e)),
            advice("warm-up"),
        )
        for e in case.episodes
        if warms_up(e)
    ]
