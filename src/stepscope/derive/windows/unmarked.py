"""Why no range marks a step, though there are ranges: they were never closed, or lie where the GPU did nothing."""

from __future__ import annotations

from collections.abc import Iterable

from stepscope.derive.rank.data import RankData
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

_APART = Threshold(
    60_000_000.0,
    "µs",
    "so far from the GPU's work, ranges are of another clock, or of another time of the program",
    ("tests/derive/windows/test_windows.py",),
)


def why_unmarked(ranks: Iterable[RankData]) -> str:
    """In parentheses, with a space before; nothing where the ranks have just no such ranges."""
    every = list(ranks)
    open_ranges = sum(int((~d.ranges["closed"]).sum()) for d in every)
    ranges = sum(d.ranges.height for d in every)
    if ranges and 2 * open_ranges > ranges:
        return f" ({open_ranges:,} of {ranges:,} ranges were never closed)"
    apart = min((_apart(d) for d in every if d.ranges.height and len(d.start)), default=0)
    return f" (its ranges lie {about(apart)} or more from its GPU work)" if apart > _APART.ns else ""


def _apart(data: RankData) -> int:
    begin, end = data.ranges["start_ns"].to_numpy(), data.ranges["end_ns"].to_numpy()
    return max(int(begin.min()) - int(data.end.max()), int(data.start.min()) - int(end.max()))
