"""Which rows of an answer are shown, and in which order: what every question lets users choose.

An answer that leaves rows out says so, in a note: which they are of how many, and how to see the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.errors import BadInput
from stepscope.model.note import noted
from stepscope.model.result import Result


@dataclass(frozen=True)
class Showing:
    """Rows by `sort`; of these the `top` that matter most; of these `limit` from `offset` on. 0 is all."""

    sort: str | None = None
    top: int | None = None
    limit: int | None = None
    offset: int = 0

    def __post_init__(self) -> None:
        for option, value in (("top", self.top), ("limit", self.limit)):
            if value is not None and value < 0:
                raise BadInput(f"--{option} {value}", "give how many rows to show; 0 for all")
        if self.offset < 0:
            raise BadInput(f"--offset {self.offset}", "give the row to begin with; the first is 0")

    def of(self, result: Result) -> Result:
        """The rows that were asked for; a note where others are left out."""
        if self.sort is not None:
            result = result.sorted(self.sort)
        if self.top is not None:
            result = result.largest(self.top)
        if self.limit is not None or self.offset:
            result = result.paged(self.limit or 0, self.offset)
        if result.rows.height < result.total:
            said = result.page or f"that matter most, {result.rows.height:,} of {result.total:,}; --top 0 for all"
            result.notes = [*result.notes, noted("rows-not-shown", which=said)]
        return result
