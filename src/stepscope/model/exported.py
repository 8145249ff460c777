"""How the model travels in a timeline that others can open: what writes exports and what reads them back agree on this.

Every row of a table that has a time is one event. Its title is the row's name; its time, its track and its process tell
the rest of the key; the other columns are arguments of the event, under their own names. What is null, or what the door
puts in place of a null, is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
import polars as pl

from stepscope.model.columns import Column, Dtype
from stepscope.model.schema import TABLES
from stepscope.model.texts import Origin, Severity

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

#: A time that leaves room for others beside it.
_Moment = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
_ELSEWHERE = ("rank", "start_ns", "end_ns")


def arguments(table: str) -> list[Column]:
    """The columns of a table that are arguments of its events."""
    apart = (*_ELSEWHERE, TITLES[table])
    return [c for c in TABLES[table] if not c.derived and c.name not in apart]


def plain_type(column: Column) -> Dtype:
    """What a column is in an export: texts are texts, words are words."""
    if column.name_id or isinstance(column.dtype, pl.Enum):
        return pl.String()
    if column.dtype == pl.Boolean:
        return pl.Boolean()
    return pl.Float64() if column.dtype in (pl.Float32, pl.Float64) else pl.Int64()


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
            msgspec.json.decode(text, type=_Told)
            return msgspec.json.decode(text, type=Header)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(str(error)) from None


class _Process(TypedDict):
    rank: int
    proc: NotRequired[int | None]
    pid: NotRequired[int | None]
    host: NotRequired[str | None]
    device: NotRequired[int | None]
    gpu: NotRequired[str | None]
    gpu_id: NotRequired[int | None]
    rank_from: NotRequired[str | None]
    setup: NotRequired[str | None]
    world_size: NotRequired[int | None]


class _Info(TypedDict, total=False):
    format: str | None
    tool: str | None
    schema: str | None
    epoch_ns: _Moment | None
    capture_ns: _Moment | None
    facts: dict[str, str] | None


class _Note(TypedDict):
    code: str
    severity: Severity
    origin: Origin
    text: str
    ranks: NotRequired[list[int]]


class _Told(msgspec.Struct):
    """What a header must be like: files come from anywhere."""

    tables: list[str]
    processes: Annotated[list[_Process], msgspec.Meta(min_length=1)]
    info: _Info = {}
    notes: list[_Note] = []
    origin_ns: _Moment = 0
    version: int = VERSION
