"""How the user chose the window."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from stepscope.errors import BadInput
from stepscope.model.times import ABSOLUTE
from stepscope.model.units import instant


@dataclass(frozen=True)
class WindowSpec:
    """How the user chose the window: by `--step`, `--chunk`, `--anchor`, `--whole`, or `--start` and `--end`."""

    anchor: str | None = None
    #: `--step` or `--chunk`, whatever the question is about by default.
    unit: Literal["step", "chunk"] | None = None
    index: int | Literal["median", "all"] = "median"
    match: bool = False
    #: Of an anchor: from the first op of the instance to the first op of the next. A step is its period anyway.
    period: bool = False
    #: Everything that was captured, whatever ranges there are.
    whole: bool = False
    start: int | None = None
    end: int | None = None
    #: By rank, what `start` and `end` count from: the capture's beginning. Empty: they are on the trace's clock.
    begins: tuple[tuple[int, int], ...] = ()
    #: The step that was settled on for all ranks (`choosing.settled`), by its label. No option: users give an index.
    label: str | None = None

    def __post_init__(self) -> None:
        if (self.start is None) != (self.end is None):
            raise BadInput(
                "--start and --end go together",
                "give both, as in --start 100ms --end 200ms",
            )
        if self.start is not None and self.end is not None and self.start >= self.end:
            first, last = (instant(ns).replace(" ", "") for ns in (self.start, self.end))
            raise BadInput(f"--start {first} is not before --end {last}", "give a window of positive length")
        by_range = self.anchor is not None or self.period or self.match or self.unit is not None
        if (self.start is not None) + self.whole + by_range > 1:
            raise BadInput(
                "--start/--end, --whole, and --step, --chunk, --anchor or --match cannot be combined", "give one"
            )
        if self.anchor is not None and self.unit is not None:
            raise BadInput(f"--anchor and --{self.unit} cannot be combined", "give one")
        if self.anchor == "":
            raise BadInput("--anchor '' is empty", "give a regular expression of ranges, or leave it out")
        if self.anchor is not None:
            try:
                re.compile(self.anchor)
            except (re.error, RecursionError, OverflowError) as error:
                raise BadInput(f"--anchor {self.anchor[:100]!r}: {error}", "give a valid regular expression") from None

    def span_of(self, rank: int) -> tuple[int, int]:
        """`--start` and `--end` on the clock of this rank."""
        begin = self._begin_of.get(rank, 0)
        return begin + (self.start or 0), begin + (self.end or 0)

    @cached_property
    def _begin_of(self) -> dict[int, int]:
        return dict(self.begins)

    def times(self) -> list[str]:
        """`--start` and `--end` as options."""
        if self.start is None or self.end is None:
            return []
        first, last = ((f"{ns}ns" if self.begins else f"{ABSOLUTE}{ns}ns") for ns in (self.start, self.end))
        return ["--start", first, "--end", last]
