"""A part of the report: a figure, with the question it answers, its window, its command and its notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepscope.model import heading
from stepscope.model.note import Note
from stepscope.model.result import Result


@dataclass(frozen=True)
class Part:
    """What the page draws as one section. `data` is of the section's own shape (report/messages)."""

    id: str
    title: str
    command: str
    windows: list[str]
    notes: list[Note]
    data: Mapping[str, Any] = field(default_factory=dict)

    def shown(self) -> dict[str, Any]:
        """As the page gets it: what every section has, and its own."""
        return {"title": self.title, "command": self.command, "windows": self.windows, **self.data}


def part(id: str, title: str, command: str, result: Result, data: Mapping[str, Any]) -> Part:
    """The part that rests on `result`."""
    return Part(id, title, command, heading.window_lines(result), result.notes, data)


@dataclass(frozen=True)
class Missing:
    """A part that the profile cannot give, and why."""

    title: str
    why: str
