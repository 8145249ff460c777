"""Steps of the program that were not recorded are longer than the one that was: a checkpoint, an evaluation, a spike.

`capture run` times every step of the program. What the trace does not hold has no cause that it could tell: the finding
says which steps to record. What it could save is what the mean step takes beyond the step that was captured, as
far as steps that are longer than their like account for it.
"""

from __future__ import annotations

from stepscope.derive.run.pace import Longer, Pace, pace_of
from stepscope.findings.case import Case
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.model.note import Note, noted
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

PACE_DIFFERS = Threshold(
    3.0,
    "% of the mean step",
    "the mean of many steps and that of a few recorded ones differ by less in steady programs",
    ("tests/findings/test_pace.py",),
)


ID = "pace"


def detect(case: Case) -> list[Finding]:
    pace = pace_of(case.profile) if case.of_run else None
    if pace is None or not pace.longer:
        return []
    longer = pace.longer[0]
    # What the trace shows of such steps has findings of its own.
    missing = min(longer.per_step_ns, pace.mean_ns - _plain(case) - sum(e.per_step_ns for e in case.episodes))
    if missing <= max(pace.error_ns / 2 if longer.every is None else 0.0, PACE_DIFFERS.share * pace.mean_ns):
        return []
    return [
        Finding(
            ID,
            title("pace", mean_ns=about(longer.mean_ns), usual_ns=about(pace.usual_ns), when=_when(longer, pace)),
            round(missing),
            "possible",
            f"{longer.count} of {pace.steps} steps that were timed and not recorded; step {longer.first} is the first "
            f"of them; the mean of all is {about(pace.mean_ns)}",
            advice("pace", first=max(longer.first - 1, 0)),
            ("run", ""),
            ranks=case.ranks,
            figures=(round(pace.mean_ns),),
            of_run=True,
        )
    ]


def notes(case: Case) -> list[Note]:
    """That what was captured is not how the program usually runs."""
    pace = pace_of(case.profile) if case.of_run else None
    if pace is None:
        return []
    plain = case.profile.unprofiled_step_ns
    captured = case.mean_ns if plain is None else min(float(case.mean_ns), plain)
    off = pace.mean_ns - captured
    if off <= max(PACE_DIFFERS.share * pace.mean_ns, pace.error_ns):
        return []
    return [
        noted(
            "step-not-usual",
            captured=about(captured),
            more=" without the profiler" if plain is not None and captured == plain else "",
            steps=pace.steps,
            mean_ns=about(pace.mean_ns),
        )
    ]


def _plain(case: Case) -> float:
    """The usual step that was captured, without its profiler where that is known."""
    plain = case.profile.unprofiled_step_ns
    return float(case.step_ns) if plain is None else min(float(case.step_ns), plain)


def _when(longer: Longer, pace: Pace) -> str:
    if longer.every:
        return f"every {longer.every} steps"
    return f"once in {pace.steps} steps" if longer.count == 1 else f"in {longer.count} of {pace.steps} steps"
