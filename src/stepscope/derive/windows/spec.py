"""How the user chose the window."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from stepscope.errors import BadInput


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
    #: The step that was settled on for all ranks (`choosing.settled`), by its label. No option: users give an index.
    label: str | None = None

    def __post_init__(self) -> None:
        if (self.start is None) != (self.end is None):
            raise BadInput("--start and --end go together", "give both, in nanoseconds of GPU time")
        if self.start is not None and self.end is not None and self.start >= self.end:
            raise BadInput(f"--start {self.start} is not before --end {self.end}", "give a window of positive length")
        by_range = self.anchor is not None or self.period or self.match or self.unit is not None
        if (self.start is not None) + self.whole + by_range > 1:
            raise BadInput(
                "--start/--end, --whole, and --step, --chunk, --anchor or --match exclude each other", "give one"
            )
        if self.anchor is not None and self.unit is not None:
            raise BadInput(f"--anchor and --{self.unit} exclude each other", "give one")
        if self.anchor is not None:
            try:
                re.compile(self.anchor)
            except (re.error, RecursionError, OverflowError) as error:
                raise BadInput(f"--anchor {self.anchor[:100]!r}: {error}", "give a valid regular expression") from None
