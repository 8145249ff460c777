"""What should I change first?

Detectors look at one step (`--anchor`, `--index` choose it), each for one thing that can be wrong. A finding says what
the step could save: where dependencies are recorded, by replaying the step without the fault; never more than the
exposure it rests on. Findings are ordered by the saving to expect. If the profiler itself slows the step, that is
reported first: it is a property of the capture. A detector that lacks what it needs is listed as skipped: that is not
the same as finding nothing. `--fail-on ID` exits 1 if that finding is worth 2 % of the step or more, `--fail-on 5%` if
any finding is worth that share or more.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any, TypedDict

from stepscope import progress
from stepscope.derive.comm.across import Align
from stepscope.derive.windows.choosing import step
from stepscope.derive.windows.spec import WindowSpec
from stepscope.errors import BadInput, CannotAnswer, GateFailed, meant, meant_of
from stepscope.files import budget
from stepscope.findings.calibration import calibrated, confidence
from stepscope.findings.case import Case
from stepscope.findings.citation import cited
from stepscope.findings.detectors.host_sync import ID as HOST_SYNC
from stepscope.findings.evidence.once import once_notes
from stepscope.findings.evidence.run_notes import other_steps_notes, run_notes
from stepscope.findings.evidence.unprofiled import profiler_cost
from stepscope.findings.finding import Finding, Skipped, ranked
from stepscope.findings.growth import without_growth
from stepscope.findings.kinds import over_kinds
from stepscope.findings.order import causes_first
from stepscope.findings.registry import OF_THE_RUN, detectors
from stepscope.findings.text import clean, of_window, statement, whole_of
from stepscope.findings.thresholds import SHOWN
from stepscope.findings.together import adds_up
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.ranks import ranks_text, sharing
from stepscope.model.result import Result, rows
from stepscope.model.units import about


class Row(TypedDict):
    id: Annotated[str, "what kind of finding"]
    title: Annotated[str, "what is wrong, in a line"]
    ranks: Annotated[str, "ranks that it is on"]
    recoverable_ns: Annotated[
        int, "time per step that fixing it could save; an upper bound where `expected_ns` is less"
    ]
    share_pct: Annotated[
        float,
        "the same as a share of the step; of the mean step where steps differ; in a capture, of what follows start-up",
    ]
    confidence: Annotated[
        str, "width of the interval: high within 10 % of the time saved, medium within 30 %, else low"
    ]
    evidence: Annotated[str, "the figures it rests on"]
    try_next: Annotated[str, "what to do about it"]
    command: Annotated[str, "the command that shows the evidence"]
    stage: Annotated[int | None, "stage of the layer, or pipeline stage, where it is in one"]
    where: Annotated[
        list[dict[str, object]], "moments to look at: rank, start_ns, end_ns (the rank's own time), stream"
    ]
    recoverable_low_ns: Annotated[
        int, "the least that it could save, in nine of ten jobs like those of docs/promises.md"
    ]
    recoverable_high_ns: Annotated[int, "the most, likewise; both ends are an interval of 90 %"]
    cause: Annotated[str, "how certain the cause is: certain (recorded), likely (inferred by a rule), possible"]
    expected_ns: Annotated[int, "the expected saving, by which findings are ordered: half of an upper bound"]


def diagnose(
    profile: Profile,
    window: WindowSpec,
    *,
    fail_on: Annotated[tuple[str, ...], "exit 1 on a finding: its id, or a share as in 5%; may be repeated"] = (),
    only: Annotated[tuple[str, ...], "check only this, by id; may be repeated"] = (),
    least: Annotated[float, "leave out findings below this percentage of the step"] = SHOWN.value,
    align: Align = "auto",
) -> Result:
    conditions = [_condition(text) for text in fail_on]
    with progress.phase("finding the steps"):
        case = Case(profile, window, align)
    findings, skipped = look(case, only)
    above = [f for f in findings if f.warns and f.id not in only]
    listed = [f for f in findings if f not in above]
    often = [f for f in listed if f.id == HOST_SYNC and f.stands_out]
    shown = [f for f in listed if f.warns or case.share(f.recoverable_ns) >= least]
    small = len(listed) - len(shown)
    notes = [*map(_of_the_capture, above), *_notes(case)]
    if small:
        which, them = ("findings, each", "them") if small > 1 else ("finding", "it")
        notes.append(noted("smaller-findings", number=small, which=which, least=least, unit=whole_of(case), them=them))
    gain, of_all = adds_up(case, shown)
    notes += of_all
    notes += [
        noted("many-waits", title=of_window(case, f.title), saved=about(f.recoverable_ns), ranks=f.ranks)
        for f in often
        if f not in shown
    ]
    sentence = statement(case, shown[0]) if shown else clean(case, least)
    summary: dict[str, Any] = {
        "step_ns": case.step_ns,
        "mean_step_ns": case.mean_ns,
        "shares_of": whole_of(case),
        "unprofiled_step_ns": case.profile.unprofiled_step_ns,
        "together_ns": gain,
        "clean": not shown and (case.on_host or any(case.computes.values())),
        "skipped": [{"id": s.id, "why": s.why} for s in skipped],
        "statement": sentence,
    }
    result = Result(rows(Row, [_row(case, f) for f in shown]), [w.row() for w in case.windows.values()], summary, notes)
    case.let_go()
    if failed := [text for f in (*above, *shown) for text, hit in conditions if hit(f, case.share(f.recoverable_ns))]:
        raise GateFailed(f"--fail-on {failed[0]}: {sentence}", None, result)
    return result


def look(case: Case, only: tuple[str, ...] = ()) -> tuple[list[Finding], list[Skipped]]:
    """All findings, ranked, and the detectors that could not look; of several kinds of steps, over all of them.

    Where ranks share a GPU, exposed communication takes what the loopback takes: what makes it exposed comes first.
    """
    findings, skipped = _look_at(case, only)
    findings = without_growth(case, findings, lambda first: _look_at(first, ())[0])
    others = [(kind, index, _look_at(of_kind, only)[0]) for kind, index, of_kind in case.others]
    found = ranked(over_kinds(findings, others) if others else findings)
    return causes_first(found) if sharing(case.profile.ranks) else found, skipped


def _look_at(case: Case, only: tuple[str, ...]) -> tuple[list[Finding], list[Skipped]]:
    """The same of one step."""
    ids = {d.id for d in detectors()}
    if unknown := [i for i in only if i not in ids]:
        raise BadInput(f"no finding has the id {unknown[0]!r}", meant_of(unknown[0], sorted(ids)))
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    if not (case.on_host or any(case.works.values())):  # what only starts, or copies, has no step to advise on
        why = "no kernel was recorded" if case.windows else "no GPU work lies in the window"
        return [], [Skipped(i, why) for i in sorted(only or ids)]
    for detector in progress.each("findings", detectors()):
        if only and detector.id not in only:
            continue
        if case.on_host and detector.id not in OF_THE_RUN:
            skipped.append(Skipped(detector.id, "no GPU activity was recorded"))
            continue
        budget.settle()
        try:
            with progress.phase(f"looking for {detector.id}"):
                detected = [f for f in detector.detect(case) if f.recoverable_ns or f.warns or f.stands_out]
        except CannotAnswer as why:
            skipped.append(Skipped(detector.id, str(why)))
            continue
        findings += _within(case, detected)
    for detector in detectors():
        if detector.rest is not None and not case.on_host and (not only or detector.id in only):
            findings += _within(case, detector.rest(case, findings))
    return findings, skipped


def _within(case: Case, findings: list[Finding]) -> list[Finding]:
    """With their intervals, of the step without its profiler as far as that is known.

    Nothing gives back more than the step, whatever the clocks of the trace say.
    """
    cost = None if case.on_host else case.once(profiler_cost)
    share = cost.share if cost is not None else 1.0
    least = [f.recoverable_ns if f.warns or f.of_run else round(f.recoverable_ns * share) for f in findings]
    most = [case.mean_ns if f.of_run else case.step_ns for f in findings]
    bounded = [replace(f, recoverable_ns=min(ns, of)) for f, ns, of in zip(findings, least, most, strict=True)]
    # What comes every few steps may cost another run more than the mean step of this one.
    return [calibrated(f, 2 * of if f.of_run else of) for f, of in zip(bounded, most, strict=True)]


def _row(case: Case, f: Finding) -> dict[str, Any]:
    return {
        "id": f.id,
        "title": of_window(case, f.title),
        "ranks": ranks_text(f.ranks or case.ranks),
        "recoverable_ns": f.recoverable_ns,
        "share_pct": case.share(f.recoverable_ns),
        "confidence": confidence(f),
        "evidence": of_window(case, f.evidence),
        "try_next": f.try_next,
        "command": cited(case, f),
        "stage": f.stage,
        "where": [{"rank": p.rank, "start_ns": p.start_ns, "end_ns": p.end_ns, "stream": p.stream} for p in f.where],
        "recoverable_low_ns": f.low_ns,
        "recoverable_high_ns": f.high_ns,
        "cause": f.cause,
        "expected_ns": f.expected_ns,
    }


def _of_the_capture(f: Finding) -> Note:
    text = f"{f.title}. {f.evidence[0].upper()}{f.evidence[1:]}. {f.try_next[0].upper()}{f.try_next[1:]}"
    return noted("profiler-distortion", text=text, ranks=f.ranks)


def _notes(case: Case) -> list[Note]:
    if case.on_host:
        return [
            noted("steps-on-the-host"),
            *(note for d in detectors() if d.id in OF_THE_RUN for note in d.notes(case)),
        ]
    try:
        notes = list(case.path.notes)
        if case.spec.start is not None:  # whether anything was recorded then
            notes += step(case.profile, case.spec).notes
    except CannotAnswer as why:
        # Of a step without a path: whether its records hold at all is said all the same.
        notes = [*step(case.profile, case.spec).notes, noted("no-replay", why=why)]
    notes += other_steps_notes(case)
    notes += run_notes(case)
    notes += once_notes(case)
    for detector in detectors():
        try:
            notes += detector.notes(case)
        except CannotAnswer:
            continue
    return notes


def _condition(text: str) -> tuple[str, Any]:
    """What `--fail-on` asks for, as a test of a finding and its share."""
    if text.endswith("%") or text.replace(".", "", 1).isdigit():
        try:
            share = float(text.removesuffix("%"))
        except ValueError:
            share = math.nan
        if not math.isfinite(share):
            raise BadInput(f"--fail-on {text}: not a share", "give a percentage, as in 5%")
        return text, lambda _, pct: pct >= share
    ids = {d.id for d in detectors()}
    if text not in ids:
        hint = f"give a share, as in 5%, or {', '.join(sorted(ids))}"
        raise BadInput(f"--fail-on {text}: no such finding", meant(text, sorted(ids)) or hint)
    return text, lambda f, pct: f.id == text
