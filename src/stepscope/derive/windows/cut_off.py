"""Ranks whose capture ended before the last steps that they began: one rank's stop can end a capture for all."""

from __future__ import annotations

from stepscope.derive.rank.data import RankData
from stepscope.derive.windows.steps import marks_of
from stepscope.model.note import Note


def cut_off(data: RankData) -> list[Note]:
    """A note where the rank's last steps or chunks launched nothing; none otherwise."""
    anchors = marks_of(data).anchors("chunk")
    if anchors is None or len(data.start) == 0:
        return []
    empty = int((anchors.start > data.launched_at.max()).sum())
    if not empty:
        return []
    return [
        Note(
            "cut-off",
            f"rank {data.rank}: no GPU work of its last {empty} of {len(anchors.label)} steps or chunks "
            "(the capture may have ended early there)",
            severity="warning",
            origin="recording",
        )
    ]
