"""What the answers about work rest on, said once per rank."""

from __future__ import annotations

from stepscope.derive.work.reference import MEASURED_ON
from stepscope.derive.work.rules import MULTIPLYING
from stepscope.derive.work.step import StepWork
from stepscope.model.capturing import capture_with
from stepscope.model.note import Note, noted


def basis_notes(work: StepWork, rank: int) -> list[Note]:
    """Which of shapes, grids and GPU the figures rest on."""
    if work.gpu is None:
        return [noted("work-gpu-unknown", rank=rank)]
    notes = []
    multiplying = work.kinds.are(*MULTIPLYING)
    if multiplying.any() and not (multiplying & work.done.known).any():
        notes.append(noted("work-without-shapes", capture_with=capture_with("shapes")))
    if work.gpu.name != MEASURED_ON:
        notes.append(noted("work-scaled", measured_on=MEASURED_ON, name=work.gpu.name))
    return notes
