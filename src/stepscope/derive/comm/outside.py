"""What of a step's communication lies outside the windows, and what it serves: the pipeline's transfers, gradients.

A median chunk, or a range that the user chose, has no warm-up, drain or optimizer (semantics §4). Whoever reads its
figures must know what they leave out.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl

from stepscope.derive.comm.purpose import UNKNOWN, purpose_of
from stepscope.derive.rank.data import COMM, RankData, ranks_of
from stepscope.derive.windows.periods import periods
from stepscope.derive.windows.steps import marks_of
from stepscope.derive.windows.window import Kind, Window, Windows, of_step, whole_capture
from stepscope.intervals.arrays import Mask
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.units import about

#: Purposes that the note names; the others are summed up.
_MOST_NAMED = 3


def outside_notes(profile: Profile, chosen: Windows) -> list[Note]:
    """How much communication of their steps the windows leave out; none where they are not parts, or have it all."""
    notes = []
    if left := _left_out(profile, chosen, "chunk"):
        notes.append(noted("communication-outside-chunk", outside=left))
    if left := _left_out(profile, chosen, "range"):
        notes.append(noted("communication-outside-window", outside=left))
    return notes


def _left_out(profile: Profile, chosen: Windows, kind: Kind) -> str | None:
    """`3.1 ms of the step's 9 ms of communication (34 %, all ranks) lies outside it: pp_p2p 2 ms, dp 1.1 ms`."""
    inside = 0
    outside: Counter[str] = Counter()
    for data in ranks_of(profile):
        parts = [w for w in chosen.of(data.rank) if w.kind == kind and len(w.ops)]
        if not parts:
            continue
        mine = _communication(data, parts)
        missing = np.flatnonzero(_communication(data, _steps_of(data, parts)) & ~mine)
        length = data.end - data.start
        inside += int(length[mine].sum())
        if not len(missing):
            continue
        served = pl.DataFrame({"purpose": purpose_of(profile, data, missing), "ns": length[missing]})
        outside.update(dict(served.group_by("purpose").agg(pl.col("ns").sum()).iter_rows()))
    total = outside.total()
    if not total:
        return None
    whole, share = about(inside + total), 100 * total / (inside + total)
    return (
        f"{about(total)} of the step's {whole} of communication ({share:.0f} %, all ranks) lies outside it"
        f"{_named(outside)}"
    )


def _named(outside: Counter[str]) -> str:
    """`: pp_p2p 3.1 ms, dp 2 ms`, the largest first; nothing where no purpose is known."""
    purposes = [(purpose, ns) for purpose, ns in outside.most_common() if purpose != UNKNOWN]
    named = purposes[:_MOST_NAMED]
    if not named:
        return ""
    rest = outside.total() - sum(ns for _, ns in named)
    return ": " + ", ".join([*(f"{p} {about(ns)}" for p, ns in named), *([f"others {about(rest)}"] if rest else [])])


def _steps_of(data: RankData, parts: list[Window]) -> list[Window]:
    """The steps that the windows were launched in; the capture, where nothing marks steps."""
    steps = periods(data) if marks_of(data).steps else None
    starts = [w.cpu_start_ns for w in parts if w.cpu_start_ns is not None]
    if steps is None or len(starts) < len(parts):
        return [whole_capture(data)]
    k = np.minimum(np.searchsorted(steps.cpu[1:], starts, side="right"), len(steps.anchors) - 1)
    return [of_step(steps, int(i)) for i in np.unique(k)]


def _communication(data: RankData, windows: list[Window]) -> Mask:
    """Which ops of the rank are communication of the windows."""
    within = np.zeros(len(data.role), dtype=bool)
    for window in windows:
        within[window.ops] = True
    communication: Mask = within & (data.role == COMM)
    return communication
