"""What the answers about work rest on, said once per rank."""

from __future__ import annotations

from stepscope.derive.work.reference import MEASURED_ON
from stepscope.derive.work.rules import MULTIPLYING
from stepscope.derive.work.step import StepWork
from stepscope.model.capturing import capture_with
from stepscope.model.note import Note


def basis_notes(work: StepWork, rank: int) -> list[Note]:
    """Which of shapes, grids and GPU the figures rest on."""
    if work.gpu is None:
        text = f"rank {rank}: the trace names no GPU that is known, so nothing says what good kernels reach"
        return [Note("work-gpu-unknown", text, severity="warning", origin="recording")]
    notes = []
    multiplying = work.kinds.are(*MULTIPLYING)
    if multiplying.any() and not (multiplying & work.done.known).any():
        text = "shapes of torch ops were not recorded: FLOPs are not known, bytes are by grids and names"
        notes.append(Note("work-without-shapes", f"{text}; {capture_with('shapes')}", origin="recording"))
    if work.gpu.name != MEASURED_ON:
        text = f"good times are measured on an {MEASURED_ON} and scaled by the peaks of {work.gpu.name}"
        notes.append(Note("work-scaled", text, origin="analysis"))
    return notes
