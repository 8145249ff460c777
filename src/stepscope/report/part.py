"""A part of the report: a figure, with the question it answers, its window, its command and its notes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stepscope.model import heading
from stepscope.model.note import Note
from stepscope.model.result import Result


@dataclass(frozen=True)
class Part:
    """What the page draws as one section. `data` is JSON of the section's own shape."""

    id: str
    title: str
    command: str
    windows: list[str]
    notes: list[Note]
    data: dict[str, Any] = field(default_factory=dict)


def part(id: str, title: str, command: str, result: Result, **data: Any) -> Part:
    """The part that rests on `result`."""
    return Part(id, title, command, heading.window_lines(result), result.notes, data)


@dataclass(frozen=True)
class Missing:
    """A part that the profile cannot give, and why."""

    title: str
    why: str
