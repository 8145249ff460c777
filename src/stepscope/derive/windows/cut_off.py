"""Ranks whose capture ended before the last steps that they began: one rank's stop can end a capture for all."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.derive.rank.data import RankData
from stepscope.derive.windows.steps import marks_of
from stepscope.model.note import Note, noted


@dataclass(frozen=True)
class CutOff:
    """How many of a rank's last steps or chunks began after its last launch, of how many."""

    rank: int
    empty: int
    total: int

    def note(self) -> Note:
        return noted("cut-off", rank=self.rank, empty=self.empty, total=self.total, ranks=[self.rank])


def cut_off(data: RankData) -> CutOff | None:
    """What the rank's last steps or chunks lack; None where it cannot be told: no steps, or no GPU work at all.

    A step without GPU work is not enough: one that others with GPU work follow was not cut off.
    """
    anchors = marks_of(data).anchors("chunk")
    if anchors is None or len(data.start) == 0:
        return None
    return CutOff(data.rank, int((anchors.start > data.launched_at.max()).sum()), len(anchors))


def notes_on_cut(data: RankData) -> list[Note]:
    """A note where the rank's last steps or chunks launched nothing; none otherwise."""
    end = cut_off(data)
    return [end.note()] if end is not None and end.empty else []
