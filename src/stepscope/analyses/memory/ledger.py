"""The ledger of a device: what its reserved bytes are made of at the peak, over time, and who holds them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.analyses.memory.origin import NOT_RECORDED, Origins, origins
from stepscope.analyses.memory.parts import Decided, decide
from stepscope.analyses.memory.reasons import REASONS, UNNAMED
from stepscope.analyses.memory.replaced import without_overlap
from stepscope.analyses.memory.room import Room, room
from stepscope.analyses.memory.rules import PARTS, UNKNOWN
from stepscope.derive.memory.history import History, histories, over_time
from stepscope.intervals.arrays import I64, NONE
from stepscope.model.profile import Profile

#: What is reserved beside the blocks.
CACHED, FRAGMENTATION, OUTSIDE = "cached, free", "fragmentation", "outside PyTorch"


@dataclass(frozen=True)
class Ledger:
    """One device. `moment` is that of the peak."""

    history: History
    stacks: Origins
    decided: Decided
    moment: int
    room: Room

    @property
    def reserved(self) -> int:
        return int(self.history.reserved[self.moment + 1])

    @property
    def whole(self) -> int:
        """What shares are of: what is reserved, or the parts where a damaged record has more of them."""
        return max(1, self.reserved, int(self.parts()["bytes"].sum()))

    @property
    def allocated(self) -> int:
        return int(self.history.allocated[self.moment + 1])

    @property
    def phase(self) -> str:
        """When the peak is: `in the backward pass of step 2`, steps counted from the recording's first."""
        if self.moment < 0:
            return "before the first event" if self.history.events else "when the snapshot was taken"
        block = int(np.searchsorted(self.history.blocks.begin, self.moment))
        decided = self.decided
        if block >= len(decided.part) or not self.stacks.recorded:
            return f"event {self.moment + 1} of {self.history.events}"
        return self.pass_of(self.moment, bool(decided.optimizing[block]), bool(decided.backward[block]))

    def pass_of(self, moment: int, optimizing: bool, backward: bool) -> str:
        """Whose code was running at a moment, and in which step."""
        which = "the optimizer" if optimizing else "the backward pass" if backward else "the forward pass"
        steps = self.decided.steps
        step = int(np.searchsorted(steps, moment, side="right")) + (0 if optimizing else 1)
        return f"in {which}" + (f" of step {step}" if len(steps) else "")

    @property
    def stacks_of_events(self) -> I64:
        """The stack of every event."""
        of_event = self.stacks.of_event
        return self.history.chain if of_event is None else of_event

    def parts(self) -> pl.DataFrame:
        """A row per part: bytes at the peak, the most that it ever holds, blocks at the peak, why."""
        blocks, decided = self.history.blocks, self.decided
        alive = blocks.alive(self.moment)
        rows: list[tuple[str, int, int | None, int | None, str]] = []
        for part, name in enumerate(PARTS):
            mine = decided.part == part
            most = over_time(blocks.begin[mine], blocks.end[mine], blocks.requested[mine], self.history.events)
            now = mine & alive
            unnamed = self.history.unnamed if part == UNKNOWN else 0
            size = int(blocks.requested[now].sum()) + unnamed
            if not size and not most.any() and not unnamed:
                continue
            rows.append(
                (name, size, int(most.max()) + unnamed, int(now.sum()), self._why(now if now.any() else mine, unnamed))
            )
        rows += [(CACHED, self.room.cached, None, None, _CACHED if self.room.fragmentation is not None else _BOTH)]
        if self.room.fragmentation is not None:
            rows.append((FRAGMENTATION, self.room.fragmentation, None, None, _FRAGMENTED))
        schema = {"part": pl.String, "bytes": pl.Int64, "most_bytes": pl.Int64, "blocks": pl.Int64, "why": pl.String}
        return pl.DataFrame(rows, schema=schema, orient="row")

    def _why(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]], unnamed: int) -> str:
        """The reason of most of these bytes."""
        by_reason = np.bincount(self.decided.reason[chosen], self.history.blocks.requested[chosen], len(REASONS))
        by_reason[UNNAMED] += unnamed
        return REASONS[int(np.argmax(by_reason))]

    def frames(self) -> pl.DataFrame:
        """Who holds what at the peak, by part and frame."""
        blocks, decided = self.history.blocks, self.decided
        rows = np.flatnonzero(blocks.alive(self.moment))
        named = pl.Series("frame", [NOT_RECORDED] * len(rows), dtype=pl.String)
        if self.stacks.recorded:
            stack = decided.stack[rows]
            early = pl.Series((blocks.begin[rows] == NONE) & (stack == NONE))
            before = pl.when(early).then(pl.lit(_BEFORE)).otherwise(self.stacks.named(stack))
            named = pl.select(before.alias("frame")).to_series()
        table = pl.DataFrame(
            {"part": pl.Series(PARTS).gather(decided.part[rows]), "frame": named, "bytes": blocks.requested[rows]}
        )
        if self.history.unnamed:
            extra = {"part": PARTS[UNKNOWN], "frame": _BEFORE, "bytes": self.history.unnamed}
            table = pl.concat([table, pl.DataFrame([extra], schema=table.schema)])
        grouped = table.group_by("part", "frame").agg(pl.col("bytes").sum(), pl.len().cast(pl.Int64).alias("blocks"))
        return grouped.sort(["bytes", "frame"], descending=[True, False])

    def part_over_time(self, name: str) -> I64:
        """Bytes of one part before the first event, and after each."""
        blocks, mine = self.history.blocks, self.decided.part == PARTS.index(name)
        return over_time(blocks.begin[mine], blocks.end[mine], blocks.requested[mine], self.history.events)

    def over_time(self, moments: I64) -> pl.DataFrame:
        """Bytes of every part after each of `moments` (NONE: before the first event)."""
        columns = {"moment": moments, "reserved_bytes": self.history.reserved[moments + 1]}
        columns["allocated_bytes"] = self.history.allocated[moments + 1]
        for number, name in enumerate(PARTS):
            unnamed = self.history.unnamed if number == UNKNOWN else 0
            columns[f"{name.replace(' ', '_')}_bytes"] = self.part_over_time(name)[moments + 1] + unnamed
        return pl.DataFrame(columns)


_BEFORE = "(before recording began)"
_CACHED = "segments without a block"
_FRAGMENTED = "room beside blocks, and rounding"
_BOTH = "cached or fragmented: segments are in snapshots"


def ledgers(profile: Profile) -> list[Ledger]:
    """Every rank's devices, in order."""
    return profile.once(_ledgers)


def _ledgers(profile: Profile) -> list[Ledger]:
    ledgers = []
    for history in histories(profile):
        stacks = origins(profile, history)
        moment = history.peak()
        reserve = room(history, moment)
        history, decided = without_overlap(history, decide(profile, history, stacks))
        ledgers.append(Ledger(history, stacks, decided, moment, reserve))
    return ledgers
