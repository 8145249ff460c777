"""One check and its outcome."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

OK, WARNING, FAILED, SKIPPED = "ok", "warning", "failed", "skipped"


@dataclass(frozen=True)
class Check:
    """A row of the answer."""

    check: str
    status: str
    ranks: str = ""
    found: str = ""
    expected: str = ""
    fix: str = ""


def spans(ranks: Iterable[int]) -> str:
    """`0,3-5`."""
    made: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if made and rank == made[-1][1] + 1:
            made[-1][1] = rank
        else:
            made.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in made)
