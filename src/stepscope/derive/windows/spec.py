"""How the user chose the window."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from stepscope.errors import BadInput


@dataclass(frozen=True)
class WindowSpec:
    """How the user chose the window: `--anchor`, `--index`, `--match`, `--period`, `--whole`, `--start` and `--end`."""

    anchor: str | None = None
    index: int | Literal["median", "all"] = "median"
    match: bool = False
    #: From the first op of the instance to the first op of the next: what happens between steps counts too.
    period: bool = False
    #: Everything that was captured, whatever ranges there are.
    whole: bool = False
    start: int | None = None
    end: int | None = None

    def __post_init__(self) -> None:
        if (self.start is None) != (self.end is None):
            raise BadInput("--start and --end go together", "give both, in nanoseconds of GPU time")
        if self.start is not None and self.end is not None and self.start >= self.end:
            raise BadInput(f"--start {self.start} is not before --end {self.end}", "give a window of positive length")
        by_range = self.anchor is not None or self.period or self.match
        if (self.start is not None) + self.whole + by_range > 1:
            raise BadInput("--start/--end, --whole and --anchor, --match or --period exclude each other", "give one")
        if self.anchor is not None:
            try:
                re.compile(self.anchor)
            except re.error as error:
                raise BadInput(f"--anchor {self.anchor!r}: {error}", "give a valid regular expression") from None
