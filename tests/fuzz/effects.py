"""What a defect may do to figures, and a mutant: an input, what was done to it, and what is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ask_mutant import Outcome

#: same: nothing reads what was changed, so that figures stay. told: no profiler writes such records, so that figures
#: which changed come with a note. free: another input that may well be right.
Effect = Literal["same", "told", "free"]
#: What was done, in words, and what that may do.
Defect = tuple[str, Effect]


def together(defects: Iterable[Defect]) -> Defect:
    """Several defects of one input."""
    said, effects = zip(*defects, strict=True)
    return "; ".join(said), "free" if "free" in effects else "told" if "told" in effects else "same"


@dataclass
class Mutant:
    """One input, ready to be asked."""

    kind: str
    said: str
    effect: Effect
    ask: Callable[[Outcome], Any]
