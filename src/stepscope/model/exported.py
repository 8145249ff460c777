"""How the model travels in a timeline that others can open: what writes exports and what reads them back agree on this.

Every row of a table that has a time is one event. Its title is the row's name; its time, its track and its process tell
the rest of the key; the other columns are arguments of the event, under their own names. What is null, or what the door
puts in place of a null, is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from stepscope.model.columns import Column
from stepscope.model.schema import TABLES

#: By table: the column that is the title of its events. Tables without times are not part of a timeline.
TITLES = {
    "ops": "name",
    "calls": "name",
    "ranges": "name",
    "syncs": "kind",
    "host": "name",
    "comms": "op",
    "counters": "name",
    "allocations": "action",
    "dependencies": "kind",
}

#: Name of the track, or key of the JSON, that holds the header; and the file of a folder that does.
MARK = "stepscope export"
FOLDER_HEADER = "stepscope.json"
VERSION = 1

_ELSEWHERE = ("rank", "start_ns", "end_ns")


def arguments(table: str) -> list[Column]:
    """The columns of a table that are arguments of its events."""
    apart = (*_ELSEWHERE, TITLES[table])
    return [c for c in TABLES[table] if not c.derived and c.name not in apart]


def ends(table: str) -> bool:
    """Whether rows of the table have an end, or are moments."""
    return any(c.name == "end_ns" for c in TABLES[table])


@dataclass(frozen=True)
class Header:
    """What a profile is beside its events."""

    #: tables that were recorded, with rows or without
    tables: list[str]
    #: `schema.PROCESSES`, a row per rank; an event's process is its place here
    processes: list[dict[str, Any]]
    #: `SourceInfo` of what was exported, as far as it is of one kind
    info: dict[str, Any] = field(default_factory=dict)
    notes: list[dict[str, Any]] = field(default_factory=list)
    #: what was taken off all times
    origin_ns: int = 0
    version: int = VERSION

    def text(self) -> str:
        return msgspec.json.encode(self).decode()

    @staticmethod
    def parse(text: str | bytes) -> Header:
        """The header of such a text; `ValueError` where it is none."""
        try:
            return msgspec.json.decode(text, type=Header)
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from None
