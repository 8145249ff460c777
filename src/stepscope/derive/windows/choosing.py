"""Which windows a question is about: those that the user's choice names, on every rank."""

from __future__ import annotations

from dataclasses import replace

from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.steps import CHUNK, STEPS, Anchors, anchors_of
from stepscope.derive.windows.window import WHOLE, Window, Windows, by_gpu_time, by_launch, whole_capture
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.note import Note
from stepscope.model.profile import Profile
from stepscope.model.ranks import some_ranks


def windows(profile: Profile, spec: WindowSpec) -> Windows:
    """The windows that `spec` chooses, for every rank of the profile."""
    notes: list[Note] = []
    spans: list[Window] = []
    chosen: list[tuple[RankData, Anchors | None, list[int]]] = []
    for data in ranks_of(profile):
        anchors = None if spec.start is not None or spec.whole else anchors_of(data, spec.anchor)
        chosen.append((data, anchors, _pick(anchors, spec, data.rank)))
    if spec.anchor is not None and all(a is None for _, a, _ in chosen):
        raise CannotAnswer(f"no range matches --anchor {spec.anchor!r}", "`stepscope nvtx` lists the ranges there are")
    if spec.match:
        chosen = _match(chosen, notes)
    whole = [d.rank for d, a, _ in chosen if a is None]
    if whole and spec.start is None and not spec.whole:
        if spec.anchor is None:
            notes.append(
                Note("no-step-range", f"no step or chunk range on {some_ranks(whole)}: the window is the whole capture")
            )
        else:
            notes.append(
                Note(
                    "no-anchor-on-ranks",
                    f"no range matches --anchor {spec.anchor!r} on {some_ranks(whole)}: left out",
                    severity="warning",
                )
            )
    for data, anchors, picks in chosen:
        if spec.start is not None and spec.end is not None:
            spans.append(by_gpu_time(data, spec.start, spec.end))
        elif anchors is None:
            if spec.anchor is None:
                spans.append(whole_capture(data))
        else:
            spans += [by_launch(data, anchors, k, spec.period) for k in picks]
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
    unlinked = sum(d.unlinked for d, _, _ in chosen)
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
    return Windows(spans, notes, {d.rank: a for d, a, _ in chosen if a is not None})


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


def _match(
    chosen: list[tuple[RankData, Anchors | None, list[int]]], notes: list[Note]
) -> list[tuple[RankData, Anchors | None, list[int]]]:
    """The same label on every rank: the common one nearest to the first rank's median."""
    have = [(d, a) for d, a, _ in chosen if a is not None]
    if not have:
        raise CannotAnswer("--match needs ranges to match", "capture with the trainer's NVTX labels")
    common = set.intersection(*(set(a.label) for _, a in have))
    first = have[0][1]
    k = min(
        (i for i, t in enumerate(first.label) if t in common),
        key=lambda i: (abs(i - len(first.label) // 2), i),
        default=None,
    )
    if k is None:
        raise CannotAnswer("no chunk has the same label on every rank", "leave out --match: each rank's own median")
    label = first.label[k]
    notes.append(Note("matched-label", f"--match: {label!r} on every rank"))
    return [(d, a, [a.label.index(label)] if a else []) for d, a, _ in chosen]


def step(profile: Profile, spec: WindowSpec) -> Windows:
    """The window that `spec` chooses; where it leaves the anchor open, the same step on every rank.

    DualPipeV's trainer marks chunks but no steps: unless other ranges do, its step is the whole capture. A profile
    keeps what was chosen.
    """
    return profile.once(_step, spec)


def _step(profile: Profile, spec: WindowSpec) -> Windows:
    if spec.index == "all":
        raise BadInput("--index all: this question is about one step", "give a number, or leave it out")
    chosen = windows(profile, spec)
    if spec.anchor is None and spec.start is None and not spec.whole and profile.names.str.contains(CHUNK).any():
        try:
            chosen = windows(profile, replace(spec, anchor=STEPS))
        except CannotAnswer:
            chosen = windows(profile, replace(spec, whole=True, period=False, match=False))
            chosen.notes.append(
                Note("no-step-range", "the trainer marks chunks, but no steps: the step is the whole capture")
            )
    return chosen
