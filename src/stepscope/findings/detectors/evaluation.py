"""Some steps also evaluate, sample or write logs: forward passes without backward passes, or a range that says so.

What it could save is what those steps take beyond the usual one, over all steps of the run. It is the price of
evaluating so often, not all of it is waste.
"""

from __future__ import annotations

from stepscope.findings.case import Case
from stepscope.findings.evidence.episode import each, episode_finding, when
from stepscope.findings.finding import Finding
from stepscope.findings.run.episodes import Episode
from stepscope.findings.texts import advice, title

ID = "evaluation"


def detect(case: Case) -> list[Finding]:
    return [
        episode_finding(
            case,
            e,
            ID,
            title("evaluation", what=_what(e), each=each(e), when=when(e)),
            advice(f"evaluation/{e.cause}"),
        )
        for e in case.episodes
        if e.cause in ("evaluation", "logging")
    ]


def _what(e: Episode) -> str:
    if e.cause == "logging":
        return "logging"
    return "an evaluation" if e.why.recorded else "an evaluation or sampling"
