"""A number on which a verdict turns, with why it is that number and not another.

It is declared in the file that judges by it; docs/thresholds.md is made of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Threshold:
    """A value in its unit, the reason for it, and the traces, tests and decisions that it rests on.

    Tests are named by file, or by file and function; traces as docs/diagnoses.md names them; decisions by number.
    """

    value: float
    unit: str
    why: str
    rests_on: tuple[str, ...]

    @property
    def share(self) -> float:
        """Per cent as a part of one."""
        return self.value / 100

    @property
    def ns(self) -> int:
        """Microseconds as nanoseconds."""
        return round(self.value * 1000)

    @property
    def count(self) -> int:
        """A number of things."""
        return int(self.value)

    def __str__(self) -> str:
        return f"{self.value:g} {self.unit}"
