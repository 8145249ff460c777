"""The run around the step that was looked at: spikes, other kinds of steps, drift, what lies between steps, start-up.

Findings are about one step, the median. What a run loses outside of it is said with what it costs per step, over all
steps; where other steps are much longer or shorter, a note says so.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.accounting.partition import partition
from stepscope.derive.rank.data import RankData
from stepscope.derive.run.account import RankRun
from stepscope.derive.run.contents import contents, named
from stepscope.derive.run.job import Run, run_of
from stepscope.derive.windows.periods import periods
from stepscope.derive.windows.samples import samples
from stepscope.derive.windows.window import Window
from stepscope.findings.case import Case
from stepscope.findings.evidence.start_up import STARTS_UP, loads
from stepscope.intervals import Spans, covered, intersect
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.range_names import short_range
from stepscope.model.statement import percent, several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

RUN_LOSES = Threshold(
    2.0,
    "% of the mean step",
    "as for findings: what a run loses outside its usual step is said from there on",
    ("tests/findings/test_run_findings.py",),
)


def run_notes(case: Case) -> list[Note]:
    """What the run has beyond a step that was asked for, where it costs a share of the mean step; start-up."""
    if case.kind == "step":  # findings say the rest of the run as a whole
        run = run_of(case.profile)
        return _before_the_steps(run) if case.of_run else _beside_the_step(run)
    return _startup(case, run_of(case.profile)) if case.kind == "capture" else []


def _beside_the_step(run: Run) -> list[Note]:
    if run.kinds is None or len(run.label) < 2:
        return []
    between = sum(r.between.length() for r in run.ranks) / max(len(run.ranks), 1)
    steps = len(run.label)
    mean = float(run.lengths.mean()) + between / steps
    parts = [text for text, ns in (*_steps(run), _between(run, between)) if ns >= RUN_LOSES.share * mean * steps]
    if not parts:
        return []
    return [noted("run-beyond-the-step", said="; ".join(parts))]


def _steps(run: Run) -> list[tuple[str, float]]:
    """What steps of other kinds, spikes and drift cost over the run, in words."""
    kinds, steps = run.kinds, len(run.label)
    assert kinds is not None, "only asked of steps"
    usual = kinds.kinds[0].usual_ns
    costs = []
    for kind in kinds.kinds[1:]:
        more = (kind.usual_ns - usual) * len(kind.steps)
        every = f"every {kind.every} steps" if kind.every else f"{len(kind.steps)} of {steps} steps"
        text = f"{every} one takes {about(kind.usual_ns)} instead of {about(usual)} ({about(more / steps)} a step)"
        costs.append((text if kind.every else text.replace("one takes", "take"), more))
    if count := int(kinds.spike.sum()):
        more = float(kinds.excess[kinds.spike].sum())
        text = f"{several(count, 'step')} of {steps} {'is a spike' if count == 1 else 'are spikes'}, "
        costs.append((f"{text}{about(more / count)} longer than usual ({about(more / steps)} a step)", more))
    if kinds.drift is not None:
        way = "grows" if kinds.drift.change_ns > 0 else "shrinks"
        text = f"the step {way} by {about(abs(kinds.drift.change_ns))} over the run"
        costs.append((text, abs(kinds.drift.change_ns) * steps / 2))
    return costs


def _between(run: Run, between: float) -> tuple[str, float]:
    first = next((r for r in run.ranks if len(r.between)), None)
    if first is None:
        return "", -1.0
    text = named(first.data, first.between_on_host)
    what = f" (`{short_range(text)}`)" if text else ""
    count, steps = len(first.between), len(run.label)
    return f"{several(count, 'stretch', 'stretches')} between steps{what}, {about(between / steps)} a step", between


def _before_the_steps(run: Run) -> list[Note]:
    """Start-up before the first step, where it is a share of what was captured. No step loses it; a short run does."""
    captured, before = (sum(of) for of in zip(*((r.end - r.begin, r.startup.length()) for r in run.ranks), strict=True))
    if before < STARTS_UP.share * captured or run.kinds is None:
        return []
    longest = max(run.ranks, key=lambda r: r.startup.length())
    parts = contents(longest.data, longest.startup)
    made = ", ".join(f"{what} {about(ns)}" for what, _, ns in parts[:2])
    steps = before / len(run.ranks) / max(float(run.lengths.mean()), 1.0)
    return [
        noted(
            "start-up-before-steps",
            length=about(longest.startup.length()),
            before=percent(before, captured),
            steps=steps,
            made=made,
        )
    ]


def _startup(case: Case, run: Run) -> list[Note]:
    """Start-up within a capture without steps: its share of the window, and what it is."""
    startups: list[tuple[RankRun, Spans]] = []
    for r in run.ranks:
        window = case.windows.get(r.data.rank)
        if window is not None and window.gpu_start_ns is not None and window.gpu_end_ns is not None:
            startups.append((r, intersect(r.startup, Spans.of(window.gpu_start_ns, window.gpu_end_ns))))
    inside = sum(spans.length() for _, spans in startups)
    whole = sum(case.windows[r.data.rank].gpu_ns for r, _ in startups)
    if not whole or inside < STARTS_UP.share * whole:
        return []
    rank, spans = max(startups, key=lambda item: item[1].length())
    if not loads(rank.data, spans):
        return []
    parts = contents(rank.data, spans)
    made = ", ".join(f"{what} {about(ns)}" for what, _, ns in parts[:2])
    share = percent(inside, whole)
    return [noted("capture-starts-up", share=share, parts=made)]


STEPS_DIFFER = Threshold(
    25.0,
    "% of the step that is looked at",
    "steps of steady jobs differ by a few per cent; where steps alternate, or some save a checkpoint, by far more",
    ("tests/findings/test_other_steps.py",),
)


def other_steps_notes(case: Case) -> list[Note]:
    """A note where the mean step is another than the one that was looked at, with what all of them have."""
    if case.episodes:  # findings say why steps differ
        return []
    steps = [row for row in case.each_rank(_all_steps).values() if row is not None]
    if not steps:
        return []
    shown, mean = (float(np.mean([row[k] for row in steps])) for k in (0, 1))
    if abs(mean - shown) <= STEPS_DIFFER.share * shown:
        return []
    compute = 100 * sum(row[2] for row in steps) / max(sum(row[3] for row in steps), 1)
    return [noted("steps-of-other-lengths", median=about(shown), mean=about(mean), compute=compute)]


def _all_steps(_: Profile, data: RankData, window: Window) -> tuple[int, float, int, int] | None:
    """The step that is shown, the mean of those that were recorded whole, and how long these compute, of how long."""
    steps, sampled = (periods(data), samples(data)) if window.kind == "step" else (None, None)
    if steps is None or sampled is None or sampled.counted.sum() < 2:
        return None
    start, end = steps.gpu[:-1][sampled.counted], steps.gpu[1:][sampled.counted]
    computing = covered(start, end, partition(data, int(steps.gpu[0]), int(steps.gpu[-1])).compute)
    length = int((end - start).sum())
    return window.gpu_ns, length / len(start), int(computing.sum()), length
