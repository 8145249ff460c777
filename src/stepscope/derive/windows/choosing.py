"""Which windows a question is about: those that the user's choice names, on every rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from stepscope.derive.rank.at_once import of_each
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.rank.recorded import contradictions
from stepscope.derive.windows.cut_off import notes_on_cut
from stepscope.derive.windows.periods import periods
from stepscope.derive.windows.samples import samples_of
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.steps import Anchors, Unit, marks_of, matching
from stepscope.derive.windows.unmarked import why_unmarked
from stepscope.derive.windows.window import Kind, Window, Windows, by_gpu_time, by_launch, of_step, whole_capture
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.capturing import capture_by
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.range_names import short_range
from stepscope.model.ranks import some_ranks
from stepscope.model.threshold import Threshold
from stepscope.model.units import duration


def windows(profile: Profile, spec: WindowSpec, unit: Unit = "step") -> Windows:
    """The windows that `spec` chooses, for every rank; where it leaves that open, instances of `unit`.

    A profile keeps what was chosen: what is derived of a window is known to every question about it.
    """
    chosen = profile.once(_windows, spec, unit)
    return Windows([*chosen.spans], [*chosen.notes], chosen.all)


def _windows(profile: Profile, spec: WindowSpec, unit: Unit) -> Windows:
    if unit != "pace":
        spec = settled(profile, spec)
    unit = spec.unit or unit
    notes: list[Note] = []
    chosen = [_Choice(data, *_anchors(data, spec, unit)) for data in ranks_of(profile)]
    if spec.unit == "chunk" and all(c.kind != "chunk" for c in chosen):
        raise CannotAnswer("no range marks chunks", "leave out --chunk: the step is the window")
    if spec.anchor is not None and all(c.anchors is None for c in chosen):
        raise CannotAnswer(f"no range matches --anchor {spec.anchor!r}", "`stepscope nvtx` lists the ranges there are")
    chosen = [replace(c, picks=_pick(c, spec)) for c in chosen]
    if spec.match and not (unit == "step" and all(c.anchors is None for c in chosen)):
        chosen = _match(chosen, notes)
    if spec.start is None and not spec.whole:
        notes += _without_anchor(chosen, spec)
    spans = [w for c in chosen for w in c.windows(spec)]
    idle = sorted({w.rank for w in spans if w.gpu_start_ns is None or (w.clipped and not len(w.ops))})
    if idle and profile.has("ops"):
        ends = {w.rank: w.cpu_end_ns if w.gpu_end_ns is None else w.gpu_end_ns for w in spans if w.rank in idle}
        between = all(_works_after(c.data, ends[c.data.rank]) for c in chosen if c.data.rank in ends)
        some = some_ranks(idle)
        notes.append(
            noted("no-gpu-work-in-window/between", some=some) if between else noted("no-gpu-work-in-window", some=some)
        )
    if spec.start is not None:
        notes += _past_the_capture(chosen, spec)
    notes += [note for c in chosen if c.kind == "capture" for note in notes_on_cut(c.data)]
    notes += [note for of_rank in of_each(profile, [c.data for c in chosen], contradictions) for note in of_rank]
    unlinked = sum(c.data.unlinked for c in chosen)
    if unlinked:
        notes.append(noted("unlinked-ops", number=unlinked))
    if spec.period and (last := [w.rank for w in spans if w.kind in ("chunk", "range") and w.index + 1 == w.count]):
        notes.append(noted("last-instance-open", some=some_ranks(last)))
    return Windows(spans, notes, spec.index == "all")


def _works_after(data: RankData, end_ns: int | None) -> bool:
    """Whether the rank's GPU has work after a window without any: then the capture did not end before it."""
    return end_ns is not None and len(data.start) > 0 and int(data.start.max()) >= end_ns


_PAST = Threshold(
    1.0,
    "% of the window",
    "times are printed with three digits after the point, and the end of a capture is given as it was printed",
    ("tests/derive/windows/test_windows.py",),
)


def _past_the_capture(chosen: list[_Choice], spec: WindowSpec) -> list[Note]:
    """Of a window by time: what lies before or after all records is idle only as far as anybody knows."""
    firsts, lasts, length = [], [], 0
    for data in (choice.data for choice in chosen):
        start, end = spec.span_of(data.rank)
        first, last = data.recorded_span()
        if first is not None and last is not None:
            firsts.append(first - start)  # ranks have clocks of their own: from the window's start on
            lasts.append(last - start)
            length = end - start
    past = length - max(0, min(length, max(lasts)) - max(0, min(firsts))) if lasts else 0
    return [noted("window-past-capture", past=duration(past))] if past > _PAST.share * length else []


def step(profile: Profile, spec: WindowSpec) -> Windows:
    """The window that `spec` chooses; where it leaves that open, the same step on every rank.

    Where no range marks the steps, the step is the whole capture.
    """
    if spec.index == "all":
        raise BadInput("--index all: this question is about one step", "give a number, or leave it out")
    return windows(profile, spec)


def settled(profile: Profile, spec: WindowSpec) -> WindowSpec:
    """The same choice, with the median step named: it must be one step for all ranks, wherever each of them is read.

    Who reads ranks in parts (`Profile.map`) settles first. The median is that of lengths over all ranks; of steps that
    some rank did not record whole, none is chosen.
    """
    named = spec.anchor is not None or spec.start is not None or spec.whole or spec.unit == "chunk"
    if named or spec.index != "median" or spec.match or spec.label is not None:
        return spec
    return replace(spec, label=profile.once(median_step, spec.unit == "step"))


def median_step(profile: Profile, asked: bool = False) -> str | None:
    """The label of the step of median length (of several, the earliest); None where nothing marks steps.

    One that is cut is not a sample: where it is the median, the whole step of the nearest length is taken, unless one
    step alone is whole, of which nothing says whether it is usual. Where steps were `asked` for, those that only chunks
    tell are some.
    """
    by_rank = [steps for part in profile.map(_lengths, asked) for steps in part]
    if not by_rank:
        return None
    common = [t for t in by_rank[0] if all(of_rank.get(t, _NONE).ns > 0 for of_rank in by_rank)]
    if not common:  # ranks that recorded other steps: the one that most have
        seen = [t for of_rank in by_rank for t, step in of_rank.items() if step.ns > 0] or list(by_rank[0])
        return max(dict.fromkeys(seen), key=seen.count)
    total = [sum(of_rank[t].ns for of_rank in by_rank) for t in common]
    median = sorted(total)[len(total) // 2]
    whole = [k for k, t in enumerate(common) if all(of_rank[t].counted for of_rank in by_rank)]
    chosen = whole if len(whole) >= _SEVERAL.count else range(len(common))
    return common[min(chosen, key=lambda k: abs(total[k] - median))]


_SEVERAL = Threshold(
    2,
    "whole steps",
    "of fewer, none is the usual one",
    ("tests/derive/windows/test_windows.py",),
)


class _Step(NamedTuple):
    """The length of a step, and whether it is a sample."""

    ns: int
    counted: bool


_NONE = _Step(0, False)


def _lengths(part: Profile, asked: bool) -> list[dict[str, _Step]]:
    """By rank that has steps: each of them by its label."""
    with_steps = [p for data in ranks_of(part) if (asked or marks_of(data).steps) and (p := periods(data)) is not None]
    # A rank without any GPU work is measured on the host; beside ranks that have some, it does not count.
    on_gpu = [p for p in with_steps if len(p.data.start)]
    measured = [(p, p.lengths) for p in on_gpu] or [(p, np.diff(p.cpu)) for p in with_steps]
    return [
        dict(zip(p.anchors.label, map(_Step, lengths.tolist(), samples_of(p.data, p).counted.tolist()), strict=True))
        for p, lengths in measured
    ]


@dataclass(frozen=True)
class _Choice:
    """A rank, and which instances of which ranges were chosen; without ranges, the whole capture."""

    data: RankData
    kind: Kind
    anchors: Anchors | None
    picks: tuple[int, ...] = ()

    def windows(self, spec: WindowSpec) -> list[Window]:
        if spec.start is not None and spec.end is not None:
            return [by_gpu_time(self.data, *spec.span_of(self.data.rank), since=spec.start if spec.begins else None)]
        if self.anchors is None:
            return [whole_capture(self.data)] if spec.anchor is None else []
        steps = periods(self.data) if self.kind == "step" else None
        if steps is not None:
            return [of_step(steps, k) for k in self.picks]
        return [by_launch(self.data, self.anchors, k, self.kind, spec.period) for k in self.picks]


def _anchors(data: RankData, spec: WindowSpec, unit: Unit) -> tuple[Kind, Anchors | None]:
    """What the windows of a rank are, and the ranges that mark them."""
    if spec.start is not None:
        return "span", None
    if spec.whole:
        return "capture", None
    if spec.anchor is not None:
        return "range", matching(data, spec.anchor)
    marks = marks_of(data)
    anchors = marks.anchors(unit)
    if anchors is None and spec.unit == "step" and marks.repeats is not None:
        return "step", marks.repeats  # asked for: the steps that `iterations` shows
    return ("capture" if anchors is None else "chunk" if anchors is marks.chunks else "step"), anchors


def _without_anchor(chosen: list[_Choice], spec: WindowSpec) -> list[Note]:
    """What became of ranks that have none of the ranges wanted."""
    lacking = [c for c in chosen if c.anchors is None]
    without = [c.data.rank for c in chosen if c.anchors is not None and not c.picks]
    notes = []
    if without:
        notes.append(noted("step-not-on-all-ranks", some=some_ranks(without), label=short_range(spec.label or "")))
    if not lacking:
        return notes
    ranks = some_ranks([c.data.rank for c in lacking])
    if spec.anchor is not None:
        return [noted("no-anchor-on-ranks", anchor=spec.anchor, some=ranks)]
    if any(marks_of(c.data).chunks is not None for c in lacking):
        paced = any(marks_of(c.data).repeats is not None for c in lacking)
        paced_text = "; --step takes one from its first chunk to the next" * paced
        return [*notes, noted("no-step-range/chunks", paced_text=paced_text)]
    why = why_unmarked(c.data for c in lacking)
    return [*notes, noted("no-step-range", some=ranks, why=why)]


def _pick(choice: _Choice, spec: WindowSpec) -> tuple[int, ...]:
    anchors = choice.anchors
    if anchors is None:
        return ()
    n = len(anchors.label)
    if spec.index == "all":
        return tuple(range(n))
    if spec.index != "median":
        k = int(spec.index)
        if not -n <= k < n:
            raise BadInput(
                f"--index {k}: rank {choice.data.rank} has {n} instances", f"give 0 to {n - 1}, median or all"
            )
        return (k % n,)
    if choice.kind != "step" or spec.label is None:
        return (n // 2,)
    return (anchors.label.index(spec.label),) if spec.label in anchors.label else ()


def _match(chosen: list[_Choice], notes: list[Note]) -> list[_Choice]:
    """The same label on every rank: the common one nearest to the first rank's median."""
    having = [c.anchors for c in chosen if c.anchors is not None]
    if not having:
        raise CannotAnswer("--match needs ranges to match", capture_by("--ranges phases"))
    common = set.intersection(*(set(anchors.label) for anchors in having))
    first = having[0].label
    k = min(
        (i for i, text in enumerate(first) if text in common),
        key=lambda i: (abs(i - len(first) // 2), i),
        default=None,
    )
    if k is None:
        raise CannotAnswer("no chunk has the same label on every rank", "leave out --match: each rank's own median")
    notes.append(noted("matched-label", label=short_range(first[k])))
    return [replace(c, picks=(c.anchors.label.index(first[k]),) if c.anchors else ()) for c in chosen]
