"""What the listed findings give back together: one replay without all of their causes.

Each finding is worth what its own remedy gives, so that two of them may promise the same time. A person who mends both
wants the sum without what is counted twice.
"""

from __future__ import annotations

from functools import reduce
from operator import and_

from stepscope.derive.replay.change import Change
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.evidence.unprofiled import profiler_cost
from stepscope.findings.finding import Finding
from stepscope.findings.registry import detectors
from stepscope.findings.text import unit
from stepscope.model.note import Note, noted
from stepscope.model.statement import listed
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

OVERLAPS = Threshold(
    95.0,
    "% of the sum",
    "replays of several causes and of each differ by some per cent where causes have nothing in common",
    ("tests/findings/test_mended_together.py",),
)


def together_ns(case: Case, findings: list[Finding]) -> int | None:
    """Time per step without any of them; None where there is nothing to add up.

    Never less than the best of them, nor more than their sum: some promise less than their remedy gives, since it is
    capped by what they were seen to cost.
    """
    if len(findings) < 2 or case.on_host or case.others:
        return None
    try:
        change = reduce(and_, map(case.remedy, dict.fromkeys(f.id for f in findings)), Change())
        saved = case.replay.saved(change, case.remedy("profiler-distortion"))
        cost = case.once(profiler_cost)
    except CannotAnswer:
        return None
    gains = [f.recoverable_ns for f in findings]
    return min(max(round(saved * (cost.share if cost is not None else 1.0)), *gains), sum(gains))


def adds_up(case: Case, shown: list[Finding]) -> tuple[int | None, list[Note]]:
    """The same of those that one replay can take out, and what to say of it."""
    having = {d.id for d in detectors() if d.remedy is not None}
    places = [k for k, f in enumerate(shown, start=1) if f.id in having and not (f.of_run or f.warns)]
    findings = [shown[k - 1] for k in places]
    gain = together_ns(case, findings)
    if gain is None:
        return None, []
    twice = 100.0 * gain < OVERLAPS.value * sum(f.recoverable_ns for f in findings)
    return gain, [
        noted(
            "findings-together",
            numbers=listed(map(str, places)),
            gain=about(gain),
            step=about(case.step_ns),
            unit=unit(case),
            share=case.share(gain),
            rest=": less than their sum, since they share time" if twice else "",
        )
    ]
