"""What a recipe is: a declaration. A small frame from every rank, tables made of them all, and a picture of those."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.result import WindowRow
from stepscope.nsys.reports.part import Part
from stepscope.nsys.reports.spec import SPAN, Args, Argument, Value
from stepscope.nsys.reports.view import View

if TYPE_CHECKING:
    from stepscope.nsys.recipes.picture import Picture

#: A function from a rank's (or a source's) part of the profile to rows that have a column `rank`.
Mapping_ = Callable[[View, Args], pl.DataFrame]


@dataclass
class Outcome:
    """What a recipe found. The first table is the one that terminals show."""

    tables: dict[str, pl.DataFrame]
    pictures: Sequence[Picture] = ()
    notes: list[Note] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def main(self) -> str:
        return next(iter(self.tables))


@dataclass(frozen=True)
class Recipe:
    """A question over many ranks. `headers` are the names that nsys's own recipe gives the columns of its files."""

    name: str
    title: str
    make: Callable[[Profile, Args], Outcome]
    doc: str
    args: tuple[Argument, ...] = ()
    #: Columns that say which row it is: what `diff` joins by. Empty where rows cannot be paired.
    keys: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    spans: bool = True

    @property
    def all_args(self) -> tuple[Argument, ...]:
        return (*self.args, *(SPAN if self.spans else ()))

    def parse(self, given: Mapping[str, Value]) -> Args:
        """Arguments by name, each of the type it was declared with; those left out have their defaults."""
        declared = {a.name: a for a in self.all_args}
        for name in given:
            if name not in declared:
                hint = f"it takes {', '.join('--' + n for n in declared)}" if declared else "it takes none"
                raise BadInput(f"recipe {self.name}: no option --{name}", hint)
        args = Args(
            {a.name: a.read(given[a.name], f"--{a.name}") if a.name in given else a.initial for a in declared.values()}
        )
        start, end = args.get("start"), args.get("end")
        if isinstance(start, int) and isinstance(end, int) and start >= end:
            raise BadInput(f"--start {start} is not before --end {end}", "give a span of positive length")
        return args


def view_of(profile: Profile, args: Args) -> View:
    """The part of the capture that was asked for."""
    start, end = args.get("start"), args.get("end")
    assert not isinstance(start, str) and not isinstance(end, str)
    return View(profile, Part(start, end))


def per_source(profile: Profile, mapping: Mapping_, args: Args, notes: list[Note]) -> list[pl.DataFrame]:
    """`mapping` of every source's ranks, one source at a time.

    A source that lacks what it takes is left out with a note; where all do, the question cannot be answered.
    """
    parts = profile.map(_mapped, mapping, args)
    frames = [f for f in parts if isinstance(f, pl.DataFrame)]
    lacking = [f for f in parts if isinstance(f, CannotAnswer)]
    if not frames:
        raise lacking[0]
    if lacking:
        notes.append(noted("files-left-out", number=len(lacking), all=len(parts), why=lacking[0].message))
    return frames


def _mapped(part: Profile, mapping: Mapping_, args: Args) -> pl.DataFrame | CannotAnswer:
    try:
        return mapping(view_of(part, args), args)
    except CannotAnswer as error:
        return error


def windows(profile: Profile, args: Args) -> list[WindowRow]:
    """What the figures rest on, rank by rank: the span asked for, or from the first to the last op of the capture."""
    low, high = args.get("start"), args.get("end")
    seen = {row[0]: row[1:] for frame in profile.map(_extent) for row in frame.iter_rows()}
    label = "whole capture" if low is None and high is None else f"[{low or 0}, {'…' if high is None else high})"
    windows: list[WindowRow] = []
    for rank, pid in profile.ranks.select("rank", "pid").iter_rows():
        first, last = seen.get(rank, (None, None))
        windows.append(
            {
                "rank": rank,
                "pid": pid,
                "label": label,
                "index": 0,
                "count": 1,
                "cpu_start_ns": None,
                "cpu_end_ns": None,
                "gpu_start_ns": first if low is None else int(low),
                "gpu_end_ns": last if high is None else int(high),
            }
        )
    return windows


def _extent(part: Profile) -> pl.DataFrame:
    """First start and last end on the GPU of every rank."""
    if not part.has("ops"):
        return pl.DataFrame(schema={"rank": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64})
    return part.ops.group_by("rank").agg(pl.col("start_ns").min(), pl.col("end_ns").max())


def with_pid(profile: Profile, frame: pl.DataFrame) -> pl.DataFrame:
    """The process id beside the rank."""
    pids = profile.ranks.select("rank", "pid")
    frame = frame.join(pids, on="rank", how="left", maintain_order="left")
    return frame.select("rank", "pid", pl.exclude("rank", "pid"))
