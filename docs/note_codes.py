"""The notes that the code can make: for docs/notes.md, and to test that codes mean one thing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from stepscope.model.texts import NOTES


@dataclass(frozen=True)
class NoteCode:
    """One text of a note."""

    code: str
    severity: str
    origin: str
    text: str


def note_codes() -> Iterator[NoteCode]:
    """Every note, with `…` for what is filled in."""
    for key, (text, severity, origin) in NOTES.items():
        plain = re.sub(r"\{[^{}]*\}", "…", text)
        yield NoteCode(key.partition("/")[0], severity, origin, plain)
