"""What a reader must know beside the figures: a text with a code, so that programs need not read prose.

Codes say what kind of thing is noted (`clocks-aligned`, `profiler-warning`); a note is its text
wherever text is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stepscope.model.texts import NOTES, Origin, Severity

#: Notes that say that some ranks recorded less than others: an answer begins with them.
INCOMPLETE = ("cut-off", "step-not-on-all-ranks", "no-gpu-work-in-window")
#: Notes on the capture that qualify every finding: they are said above the list.
OF_THE_CAPTURE = ("profiler-distortion", "step-not-usual", "capture-starts-up", "comes-once")
#: Notes of records that are damaged, or contradict each other: every answer begins with them, none is to be trusted.
CONTRADICTORY = (
    *("file-damaged", "ops-before-launch", "launches-without-op", "launches-shared", "kernels-without-name"),
    "coordinates-twice",
)


class Note(str):
    """One note. Equal texts are equal notes."""

    __slots__ = ("code", "origin", "ranks", "severity")

    code: str
    severity: Severity
    origin: Origin
    ranks: tuple[int, ...]

    def __new__(
        cls,
        code: str,
        text: str,
        *,
        severity: Severity = "info",
        origin: Origin = "analysis",
        ranks: Iterable[int] = (),
    ) -> Note:
        note = super().__new__(cls, text)
        note.code, note.severity, note.origin, note.ranks = code, severity, origin, tuple(ranks)
        return note

    def of(self, which: str) -> Note:
        """The same note, said of one file or side among several."""
        return Note.from_data({**self.data(), "text": f"{which}: {self}"})

    def data(self) -> dict[str, Any]:
        """As JSON and the report carry it."""
        ranks = {"ranks": list(self.ranks)} if self.ranks else {}
        return {"code": self.code, "severity": self.severity, "origin": self.origin, "text": str(self), **ranks}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Note:
        """What `data` gave."""
        fields = {"severity": data["severity"], "origin": data["origin"], "ranks": data.get("ranks", ())}
        return cls(data["code"], data["text"], **fields)

    def __reduce__(self) -> tuple[Any, ...]:  # workers send notes back
        return Note.from_data, (self.data(),)


def noted(key: str, /, *, severity: Severity | None = None, ranks: Iterable[int] = (), **values: object) -> Note:
    """The note that stands under `key` in `model/texts`, with what its braces name filled in."""
    text, usual, origin = NOTES[key]
    return Note(
        key.partition("/")[0],
        text.format_map(values),
        severity=severity or usual,
        origin=origin,
        ranks=ranks,
    )


#: What the profiler itself warned of.
PROFILER_WARNING = "profiler-warning"

#: Records that are not part of the answer: of other processes or times, or impossible ones.
LEFT_OUT = ("rows-left-out", "rows-impossible")
#: Records that no profiler should have written.
IMPOSSIBLE = ("rows-impossible", "values-unknown")


def foremost(notes: Iterable[Note]) -> list[Note]:
    """Notes of records that contradict each other before all others, those of many ranks as one."""
    every = list(notes)
    by_code = {code: [n for n in every if n.code == code] for code in CONTRADICTORY}
    first = [alike[0] if len(alike) == 1 else _with_others(alike) for alike in by_code.values() if alike]
    return [*first, *(n for n in every if n.code not in CONTRADICTORY)]


def _with_others(alike: list[Note]) -> Note:
    others = len(alike) - 1
    text = f"{alike[0]} ({others} other rank{'s' * (others > 1)} too)"
    return Note.from_data({**alike[0].data(), "text": text})


def folded(notes: Iterable[Note]) -> list[Note]:
    """The profiler's own warnings as one line: they matter, but not before every answer."""
    every = list(notes)
    warnings = sum(n.code == PROFILER_WARNING for n in every)
    if warnings < 2:
        return every
    short = noted("profiler-warnings", number=warnings)
    return [*(n for n in every if n.code != PROFILER_WARNING), short]
