"""The capture holds warm-up: code is compiled, loaded or tried out in some of its steps, or its first ones are longer.

A long run pays that once. What it costs is what those steps take beyond the usual one, over the steps of this capture;
other findings are about the usual step.
"""

from __future__ import annotations

from stepscope.findings.case import Case
from stepscope.findings.evidence.episode import each, episode_finding, warms_up, when
from stepscope.findings.finding import Finding

ID = "warm-up"

_WHAT = {
    "compile": "code is compiled or loaded for",
    "trial": "kernels are tried out that no other step runs, for",
}


def detect(case: Case) -> list[Finding]:
    return [
        episode_finding(
            case,
            e,
            ID,
            f"{_WHAT.get(e.cause, 'the first steps settle, longer by')} {each(e)} {when(e)}",
            "if it happens once, capture later: it is not lost in every step. If it recurs, shapes change: fix or "
            "pad them, mark them dynamic (torch.compile), and let cudnn.benchmark see each shape before training",
        )
        for e in case.episodes
        if warms_up(e)
    ]
