"""When a capture begins: at its first GPU op. Times of options and of printed tables count from there.

Files whose captures overlap are taken to be on one clock, and have one beginning; a file that lies apart from the
others, as of a host whose clock is another, has its own.
"""

from __future__ import annotations

from collections.abc import Mapping

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
