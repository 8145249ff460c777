"""What of a step's communication lies outside its median chunk: in warm-up, drain and optimizer (semantics §4)."""

from __future__ import annotations

from stepscope.derive.rank.data import COMM, RankData, ranks_of
from stepscope.derive.windows.periods import periods
from stepscope.derive.windows.steps import marks_of
from stepscope.derive.windows.window import Window, Windows, of_step, whole_capture
from stepscope.model.note import Note
from stepscope.model.profile import Profile
from stepscope.model.units import about


def outside_notes(profile: Profile, chosen: Windows) -> list[Note]:
    """How much communication of the step the chunks leave out; none where the windows are no chunks, or have it all."""
    inside = outside = 0
    for data in ranks_of(profile):
        chunks = [w for w in chosen.of(data.rank) if w.kind == "chunk" and len(w.ops)]
        if not chunks:
            continue
        whole = _comm_ns(data, _step_of(data, chunks[0]))
        inside += (mine := sum(_comm_ns(data, w) for w in chunks))
        outside += max(whole - mine, 0)
    if not outside:
        return []
    share = 100 * outside / (inside + outside)
    return [
        Note(
            "communication-outside-chunk",
            f"the window is a chunk: {about(outside)} of the step's {about(inside + outside)} of communication "
            f"({share:.0f} %, all ranks) lie outside it; --step has all of it",
        )
    ]


def _step_of(data: RankData, chunk: Window) -> Window:
    """The step that the chunk was launched in; the capture, where nothing marks steps."""
    steps = periods(data) if marks_of(data).steps else None
    if steps is None or chunk.cpu_start_ns is None:
        return whole_capture(data)
    k = int(steps.cpu[1:].searchsorted(chunk.cpu_start_ns, side="right"))
    return of_step(steps, min(k, len(steps.anchors) - 1))


def _comm_ns(data: RankData, window: Window) -> int:
    ops = window.ops[data.role[window.ops] == COMM]
    return int((data.end[ops] - data.start[ops]).sum())
