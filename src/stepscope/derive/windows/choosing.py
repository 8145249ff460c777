"""Which windows a question is about: those that the user's choice names, on every rank."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.steps import Anchors, Unit, marks_of, matching
from stepscope.derive.windows.window import WHOLE, Window, Windows, by_gpu_time, by_launch, whole_capture
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.note import Note
from stepscope.model.profile import Profile
from stepscope.model.ranks import some_ranks


def windows(profile: Profile, spec: WindowSpec, unit: Unit = "chunk") -> Windows:
    """The windows that `spec` chooses, for every rank; where it leaves that open, instances of `unit`."""
    notes: list[Note] = []
    spans: list[Window] = []
    chosen: list[_Choice] = []
    for data in ranks_of(profile):
        anchors = _anchors(data, spec, unit)
        chosen.append(_Choice(data, anchors, _pick(anchors, spec, data.rank)))
    if spec.anchor is not None and all(c.anchors is None for c in chosen):
        raise CannotAnswer(f"no range matches --anchor {spec.anchor!r}", "`stepscope nvtx` lists the ranges there are")
    if spec.match and not (unit == "step" and all(c.anchors is None for c in chosen)):
        chosen = _match(chosen, notes)
    if spec.start is None and not spec.whole:
        notes += _without_anchor(chosen, spec)
    for c in chosen:
        if spec.start is not None and spec.end is not None:
            spans.append(by_gpu_time(c.data, spec.start, spec.end))
        elif c.anchors is None:
            if spec.anchor is None:
                spans.append(whole_capture(c.data))
        else:
            spans += [by_launch(c.data, c.anchors, k, spec.period) for k in c.picks]
    idle = sorted({w.rank for w in spans if w.gpu_start_ns is None})
    if idle:
        notes.append(
            Note(
                "no-gpu-work-in-window",
                f"{some_ranks(idle)}: no GPU work in the window (the capture may have ended early there)",
                severity="warning",
                origin="recording",
            )
        )
    unlinked = sum(c.data.unlinked for c in chosen)
    if unlinked:
        notes.append(
            Note(
                "unlinked-ops",
                f"{unlinked} GPU ops have no launch record: placed by their GPU start",
                origin="recording",
            )
        )
    if spec.period and (last := [w.rank for w in spans if w.label != WHOLE and w.index + 1 == w.count]):
        notes.append(
            Note(
                "last-instance-open",
                f"{some_ranks(last)}: nothing follows the last instance, so its window ends with its last op",
            )
        )
    return Windows(spans, notes, {c.data.rank: c.anchors for c in chosen if c.anchors is not None})


def step(profile: Profile, spec: WindowSpec) -> Windows:
    """The window that `spec` chooses; where it leaves that open, the same step on every rank.

    Where no range marks the steps, the step is the whole capture. A profile keeps what was chosen.
    """
    if spec.index == "all":
        raise BadInput("--index all: this question is about one step", "give a number, or leave it out")
    return profile.once(windows, spec, "step")


@dataclass(frozen=True)
class _Choice:
    """A rank, and which instances of which ranges were chosen; without ranges, the whole capture."""

    data: RankData
    anchors: Anchors | None
    picks: list[int]


def _anchors(data: RankData, spec: WindowSpec, unit: Unit) -> Anchors | None:
    if spec.start is not None or spec.whole:
        return None
    return marks_of(data).anchors(unit) if spec.anchor is None else matching(data, spec.anchor)


def _without_anchor(chosen: list[_Choice], spec: WindowSpec) -> list[Note]:
    """What became of ranks that have none of the ranges wanted."""
    lacking = [c for c in chosen if c.anchors is None]
    if not lacking:
        return []
    ranks = some_ranks([c.data.rank for c in lacking])
    if spec.anchor is not None:
        return [
            Note(
                "no-anchor-on-ranks",
                f"no range matches --anchor {spec.anchor!r} on {ranks}: left out",
                severity="warning",
            )
        ]
    if any(marks_of(c.data).chunks is not None for c in lacking):
        return [Note("no-step-range", "the trainer marks chunks, but no steps: the step is the whole capture")]
    return [Note("no-step-range", f"no step or chunk range on {ranks}: the window is the whole capture")]


def _pick(anchors: Anchors | None, spec: WindowSpec, rank: int) -> list[int]:
    if anchors is None:
        return []
    n = len(anchors.label)
    if spec.index == "all":
        return list(range(n))
    k = n // 2 if spec.index == "median" else int(spec.index)
    if not -n <= k < n:
        raise BadInput(f"--index {k}: rank {rank} has {n} instances", f"give 0 to {n - 1}, median or all")
    return [k % n]


def _match(chosen: list[_Choice], notes: list[Note]) -> list[_Choice]:
    """The same label on every rank: the common one nearest to the first rank's median."""
    having = [c.anchors for c in chosen if c.anchors is not None]
    if not having:
        raise CannotAnswer("--match needs ranges to match", "capture with the trainer's NVTX labels")
    common = set.intersection(*(set(anchors.label) for anchors in having))
    first = having[0].label
    k = min(
        (i for i, text in enumerate(first) if text in common),
        key=lambda i: (abs(i - len(first) // 2), i),
        default=None,
    )
    if k is None:
        raise CannotAnswer("no chunk has the same label on every rank", "leave out --match: each rank's own median")
    notes.append(Note("matched-label", f"--match: {first[k]!r} on every rank"))
    return [replace(c, picks=[c.anchors.label.index(first[k])] if c.anchors else []) for c in chosen]
