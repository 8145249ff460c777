"""A small allocator that records itself: random programs with every moment's truth kept beside them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from fake import Row, make
from stepscope.model.profile import Profile

ROUND = 512


@dataclass
class Allocator:
    """First fit in segments of 8 KiB or the size asked for. `truth` has (alive blocks, segments) after each event."""

    rng: random.Random
    segments: dict[int, int] = field(default_factory=dict)
    blocks: dict[int, tuple[int, int]] = field(default_factory=dict)  # address: (asked for, size)
    events: list[Row] = field(default_factory=list)
    truth: list[tuple[dict[int, tuple[int, int]], dict[int, int]]] = field(default_factory=list)
    recording: bool = False
    #: segments of several lives may have the address of an earlier one
    places: list[int] = field(default_factory=lambda: [i << 20 for i in range(1, 9)])

    def note(self, action: str, address: int, size: int) -> None:
        if self.recording:
            row = len(self.events)
            self.events.append(
                {"row": row, "start_ns": row * 10, "action": action, "device": 0, "address": address, "bytes": size}
            )
            self.truth.append((dict(self.blocks), dict(self.segments)))

    def alloc(self, asked: int) -> None:
        size = -(-asked // ROUND) * ROUND
        for base, length in sorted(self.segments.items()):
            at = base
            for address, (_, taken) in sorted((a, b) for a, b in self.blocks.items() if base <= a < base + length):
                if address - at >= size:
                    break
                at = address + taken
            if base + length - at >= size:
                self.blocks[at] = asked, size
                return self.note("alloc", at, asked)
        free = [p for p in self.places if p not in self.segments]
        if not free:
            return None
        base = self.rng.choice(free)
        self.segments[base] = max(size, 8192)
        self.note("segment_alloc", base, self.segments[base])
        self.blocks[base] = asked, size
        return self.note("alloc", base, asked)

    def free(self) -> None:
        if self.blocks:
            address = self.rng.choice(sorted(self.blocks))
            asked, _ = self.blocks[address]
            self.note("free_requested", address, asked)
            del self.blocks[address]
            self.note("free", address, asked)

    def empty_cache(self) -> None:
        for base, length in list(self.segments.items()):
            if not any(base <= a < base + length for a in self.blocks):
                del self.segments[base]
                self.note("segment_free", base, length)

    def held(self) -> list[Row]:
        """The segments, block by block, as a snapshot has them."""
        rows: list[Row] = []
        for base, length in self.segments.items():
            common: dict[str, Any] = {"device": 0, "segment": base, "segment_bytes": length}
            common |= {"small": False, "expandable": False}
            at = base
            for address, (asked, size) in sorted((a, b) for a, b in self.blocks.items() if base <= a < base + length):
                if address > at:
                    rows.append({**common, "address": at, "bytes": address - at, "state": "free"})
                rows.append(
                    {**common, "address": address, "bytes": size, "requested_bytes": asked, "state": "allocated"}
                )
                at = address + size
            if base + length > at:
                rows.append({**common, "address": at, "bytes": base + length - at, "state": "free"})
        return rows


def program(seed: int, before: int = 30, events: int = 200) -> tuple[Profile, Allocator]:
    """A random program, recorded after its first `before` steps."""
    rng = random.Random(seed)
    allocator = Allocator(rng)
    for step in range(before + events):
        allocator.recording = step >= before
        kind = rng.random()
        if kind < 0.5:
            allocator.alloc(rng.randint(1, 5000))
        elif kind < 0.95:
            allocator.free()
        else:
            allocator.empty_cache()
    return make(allocations=allocator.events, blocks=allocator.held()), allocator
