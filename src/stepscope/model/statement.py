"""The sentence that closes an answer: it answers the question, with figure, window and condition (semantics §10).

A result has it as `summary["statement"]`; tables and Markdown print it last. Every question words its own; here are
the words that they share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stepscope.model.units import about

#: The summary's key for the sentence that people quote.
STATEMENT = "statement"


def several(n: int, one: str, many: str | None = None) -> str:
    """`1 rank`, `1,234 ranks`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def percent(part: float, whole: float) -> str:
    """`37 %`; what is not nothing is never `0 %`, and what is not all never `100 %`."""
    share = 100.0 * part / whole if whole else 0.0
    if 0 < share < 0.5:
        return "under 1 %"
    return "over 99 %" if 99.5 <= share < 100 else f"{share:.0f} %"


def sum_over(ranks: int) -> str:
    """What to say of a sum: ` (sum over 4 ranks)`; nothing for one rank."""
    return f" (sum over {ranks} ranks)" if ranks > 1 else ""


def time_of(part: float, whole: float, ranks: int = 1) -> str:
    """`311 ms of 415 ms (sum over 4 ranks)`."""
    return f"{about(part)} of {about(whole)}{sum_over(ranks)}"


def most_in(parts: Mapping[str, float]) -> tuple[str, str] | None:
    """The largest part, and whether it is `most` of all or only `the largest part`; None where there is one at most."""
    sizes = {name: size for name, size in parts.items() if size > 0}
    if len(sizes) < 2:
        return None
    name = max(sizes, key=lambda k: sizes[k])
    return name, "most" if 2 * sizes[name] > sum(sizes.values()) else "the largest part"


def listed(texts: Iterable[str], word: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`; with another word, `a, b or c`."""
    *before, last = list(texts) or [""]
    return f"{', '.join(before)} {word} {last}" if before else last


def counted(names: Mapping[str, int], most: int = 2) -> str:
    """`32 cudaMalloc, 32 cudaFree`: of one step, the most frequent ones."""
    shown = [f"{n:,} {name}" for name, n in list(names.items())[:most]]
    rest = len(names) - most
    return ", ".join(shown) + (f" and {rest} other calls" if rest > 0 else "")
