"""What is reserved and not given out at a moment: segments that could be returned, and room between blocks.

A segment without a block is *cached*: `torch.cuda.empty_cache()` returns it, and so does the allocator before it gives
up. Room in a segment that has a block is *fragmentation*: it can only be given out to a request that fits, and so can
what a block has beyond what was asked for. Of expandable segments whole pages without a block are cached.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.derive.memory.history import History
from stepscope.intervals import Spans, subtract, union
from stepscope.intervals.arrays import I64

#: Pages of expandable segments: of the pool for blocks above 1 MiB. Those of the other pool are smaller, and a part of
#: one such page is at stake.
PAGE = 20 << 20


@dataclass(frozen=True)
class Room:
    """Bytes that are reserved and hold nothing."""

    cached: int
    fragmentation: int | None  # between blocks, and rounding; None where segments are not recorded: it is in `cached`


def room(history: History, moment: int) -> Room:
    """The room at a moment."""
    alive = history.blocks.alive(moment)
    address, size = history.blocks.address[alive], history.blocks.size[alive]
    rounding = max(0, int(size.sum() - history.blocks.requested[alive].sum()))
    segments = history.segments
    if segments is None:
        return Room(int(history.reserved[moment + 1] - history.allocated[moment + 1]), None)
    there = (segments.begin <= moment) & (segments.end > moment)
    start, length = segments.address[there], segments.size[there]
    if history.expandable:
        mapped = union(start, start + length)
        start, length = mapped.start, mapped.end - mapped.start
    order = np.argsort(start)
    start, length = start[order], length[order]
    home = np.searchsorted(start, address, side="right") - 1
    used = np.zeros(len(start), dtype=np.int64)
    inside = home >= 0  # a damaged record may have blocks where no segment is
    np.add.at(used, home[inside], size[inside])
    cached = length[used == 0].sum() if not history.expandable else _free_pages(start, length, address, size)
    beside = int(length.sum() - used.sum() - cached)  # below 0 where a damaged record has more blocks than segments
    return Room(int(cached), max(0, beside) + rounding)


def _free_pages(start: I64, length: I64, address: I64, size: I64) -> int:
    """Bytes of whole pages that no block touches. Pages count from the start of the mapped range."""
    if not len(start):
        return 0
    home = np.maximum(np.searchsorted(start, address, side="right") - 1, 0)
    base = start[home]
    first = base + (address - base) // PAGE * PAGE
    last = base + -(-(address + size - base) // PAGE) * PAGE
    touched = union(first, np.minimum(last, base + length[home]))
    free: Spans = subtract(union(start, start + length), touched)
    return int(free.length())
