"""What grows with the step is the drift's, and no finding of its own: one loss, once.

The step that is shown lies in the middle of the run: what a detector sees there and not in the run's first step has
grown since. It is told as what the drift is made of; the finding keeps what it gives back in the first step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from stepscope.derive.run.job import run_of
from stepscope.findings.case import Case
from stepscope.findings.finding import Finding
from stepscope.findings.thresholds import SHOWN
from stepscope.model.profile import Profile
from stepscope.model.units import about


def first_and_last(profile: Profile) -> tuple[str, str]:
    """The first and the last usual step of a run that has kinds of steps, spikes left out."""
    run = run_of(profile)
    assert run is not None and run.kinds is not None, "only asked of steps"
    usual = run.kinds.kinds[0].steps
    calm = np.sort(usual[~run.kinds.spike[usual]])
    return run.label[int(calm[0])], run.label[int(calm[-1])]


#: Id of the finding that the step grows.
_DRIFT = "drift"

Look = Callable[[Case], list[Finding]]


def without_growth(case: Case, findings: list[Finding], look: Look) -> list[Finding]:
    """The findings of the shown step without what it has only since the step grows; `look` asks all detectors."""
    drift = next((f for f in findings if f.id == _DRIFT), None)
    suspects = [f for f in findings if not (f.of_run or f.warns) and case.material(f.recoverable_ns, SHOWN)]
    if drift is None or not suspects or not case.material(drift.recoverable_ns, SHOWN):
        return findings
    label, _ = first_and_last(case.profile)
    before = look(case.of(label))
    at_first = {(f.id, f.ranks): f.recoverable_ns for f in before}
    gains = [f.recoverable_ns - at_first.get((f.id, f.ranks), 0) for f in suspects]
    grown = [(ns, f) for ns, f in zip(gains, suspects, strict=True) if case.material(ns, SHOWN)]
    if not grown:
        return findings
    most_ns, most = max(grown, key=lambda pair: pair[0])
    growth = replace(
        drift,
        evidence=f"{drift.evidence}; the step shown has {about(most_ns)} more of this than the first: {most.title} "
        f"[{most.id}]",
        ranks=most.ranks or drift.ranks,
        try_next=f"{most.try_next}; {drift.try_next}",
    )
    others = [f for f in findings if f is not drift and not any(f is g for _, g in grown)]
    left = [_smaller(f, f.recoverable_ns - ns) for ns, f in grown]
    return [growth, *others, *(f for f in left if f.recoverable_ns or f.stands_out)]


def _smaller(f: Finding, left: int) -> Finding:
    share = left / f.recoverable_ns
    low, high = (None if ns is None else round(ns * share) for ns in (f.low_ns, f.high_ns))
    return replace(f, recoverable_ns=left, low_ns=low, high_ns=high)
