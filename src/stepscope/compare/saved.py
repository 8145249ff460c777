"""What a baseline file may hold. People edit it and merge it, so every value is checked when it is read: a negative or
missing time would let any run pass.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from stepscope.compare.run import PARTS
from stepscope.compare.steps import Kind
from stepscope.model.fields import MOST_RANKS

#: A year in nanoseconds: no step is longer.
_LONGEST_NS = 3.2e16

#: What a baseline keeps of a run: tables by these keys.
KEPT = ("part", "stage", "family")

#: What rounding can do to the sum of many keys.
_ROUNDED_NS = 100

Ns = Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_NS)]
Times = Annotated[list[Ns], msgspec.Meta(min_length=1)]


class SavedRun(msgspec.Struct):
    """One run: by table, key and part the nanoseconds of each step."""

    kind: Kind
    ranks: Annotated[int, msgspec.Meta(ge=1, le=MOST_RANKS)]
    labels: list[str]
    tables: dict[str, dict[str, dict[str, Times]]]

    def __post_init__(self) -> None:
        if set(self.tables) != set(KEPT):
            raise ValueError(f"not its tables by {', '.join(KEPT)}")
        columns = [column for table in self.tables.values() for parts in table.values() for column in parts.items()]
        if not {part for part, _ in columns} <= set(PARTS):
            raise ValueError("a part that is none")
        if len({len(times) for _, times in columns}) != 1 or not self.tables.get("part", {}).get("step"):
            raise ValueError("not as many steps everywhere")
        if not all(map(sum, zip(*self.tables["part"]["step"].values(), strict=True))):
            raise ValueError("a step of no length")
        if not self._sums_agree():
            raise ValueError("tables that do not sum to the same steps")
        if self.kind == "chunk" and len(self.labels) != self.steps:
            raise ValueError("not a label for each chunk")

    def _sums_agree(self) -> bool:
        """Every table splits the same steps; times are rounded when they are saved."""
        sums = [
            [sum(times) for times in zip(*(c for parts in table.values() for c in parts.values()), strict=True)]
            for table in self.tables.values()
        ]
        return all(
            abs(ns - first) <= _ROUNDED_NS for step in zip(*sums, strict=True) for first in step[:1] for ns in step
        )

    @property
    def steps(self) -> int:
        return len(next(iter(self.tables["part"]["step"].values())))


class SavedSpec(msgspec.Struct, forbid_unknown_fields=True):
    """How its steps were chosen; see `steps.StepSpec`."""

    anchor: str | None = None
    whole: bool = False
    warmup: Annotated[int, msgspec.Meta(ge=0)] = 0
    unit: Literal["step", "chunk"] | None = None


class Saved(msgspec.Struct):
    """The whole file, but for its version."""

    facts: dict[str, str]
    runs: Annotated[list[SavedRun], msgspec.Meta(min_length=1)]
    spec: SavedSpec
    scenario: dict[str, Any] | None = None
