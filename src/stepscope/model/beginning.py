"""When a capture begins: at its first GPU op. Times of options and of printed tables count from there.

Files whose captures overlap are taken to be on one clock, and have one beginning; a file that lies apart from the
others, as of a host whose clock is another, has its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from stepscope.errors import BadInput
from stepscope.model.units import duration, instant

#: First start and last end of the GPU ops of a file, on its clock.
Extent = tuple[int, int]


def beginnings(extents: Mapping[int, Extent]) -> dict[int, int]:
    """By file: the beginning of the capture on its clock."""
    begins: dict[int, int] = {}
    begin = until = 0
    for file, (first, last) in sorted(extents.items(), key=lambda item: item[1]):
        if not begins or first > until:
            begin, until = first, last
        until = max(until, last)
        begins[file] = begin
    return begins


def outside(extents: Mapping[int, Extent], begins: Mapping[int, int]) -> BadInput:
    """Of a window in which nothing was captured: when something was. Both by rank."""
    length = max(last - begins[rank] for rank, (_, last) in extents.items())
    clock, end = (instant(ns).replace(" ", "") for ns in (min(begins.values()), length))
    return BadInput(
        f"--start and --end lie outside the capture, which lasts {duration(length)}",
        f"give times from its beginning, 0 to {end}; on the trace's clock it begins at @{clock}",
    )
