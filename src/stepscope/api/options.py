"""What users write, read and checked: ranks, instances, and the options that signatures of analyses stand for."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypedDict, Union, get_args, get_origin

from stepscope import questions
from stepscope.derive.windows.spec import WindowSpec
from stepscope.errors import BadInput
from stepscope.model.beginning import outside
from stepscope.model.option import Json, Option, Shell, shared_options
from stepscope.model.profile import Profile
from stepscope.model.times import Moment, moment

Ranks = str | int | Iterable[int]
#: Nanoseconds of the trace's clock, as in columns; or a text as on the command line: `1ms` from the beginning on.
Time = int | str


class Window(TypedDict, total=False):
    """Keywords that choose the window of a windowed analysis."""

    step: Annotated[bool, "the step, from the end of the one before it to its own end"]
    chunk: Annotated[bool, "the median overlapped chunk, where the trainer marks chunks"]
    anchor: Annotated[
        str | None,
        "a regular expression: ranges to use as windows",
        Shell(metavar="REGEX", help="Use the ranges that match REGEX as windows."),
    ]
    index: Annotated[
        int | Literal["median", "all"],
        "which step, chunk or instance of the anchor: a number, `median` or `all`",
        Json(int | str),
        Shell(metavar="N|median|all", default="median", help="Which step, chunk or instance of the anchor."),
    ]
    match: Annotated[bool, "the same chunk on every rank, not each rank's own median"]
    period: Annotated[bool, "with an anchor: to the first op of its next instance"]
    whole: Annotated[bool, "the whole capture, whatever ranges there are"]
    start: Annotated[
        Time | None,
        "GPU time, with `end`: `1.5ms` from the capture's beginning; numbers are of the trace's clock",
        Shell(metavar="TIME", help="Start of a window in GPU time, from the beginning of the capture: 1.5ms."),
    ]
    end: Annotated[Time | None, "end of that window", Shell(metavar="TIME")]


class Rows(TypedDict, total=False):
    """Keywords that choose rows of the answer, and their order."""

    sort: Annotated[
        str | None, "sort rows by these columns: `exposed_ns`, or `rank,dur_ns:asc`", Shell(metavar="COLUMNS")
    ]
    top: Annotated[
        int | None,
        "the rows that matter most, so many; 0 for all",
        Shell(
            metavar="N",
            help="The N rows that matter most, or come first with --sort; 0 for all. Default: 10 of a long list in a "
            "table or Markdown, else all.",
        ),
    ]
    limit: Annotated[int | None, "show a page of N rows, in their order; 0 for all", Shell(metavar="N")]
    offset: Annotated[int, "the row to begin with; the first is 0", Shell(metavar="N", default=0)]


class Ranked(TypedDict, total=False):
    """The keyword that chooses ranks."""

    rank: Annotated[Ranks | None, "only these ranks: `0,3-5`", Json(int | str), Shell(metavar="RANKS")]


class Common(Rows, Ranked, total=False):
    """Keywords that every analysis has."""


class Windowed(Common, Window, total=False):
    """Keywords that every analysis of a window has."""


WINDOW_KEYWORDS = tuple(Window.__annotations__)
ROW_KEYWORDS = tuple(Rows.__annotations__)
#: Keywords that every analysis has; no analysis may use them for options of its own.
RESERVED = (*WINDOW_KEYWORDS, "rank", *ROW_KEYWORDS)


@cache
def shared() -> dict[str, Option]:
    """By name, the options that all analyses have, or all that look at a window."""
    return {o.name: o for o in shared_options(Windowed)}


def keywords(analysis: questions.Analysis) -> tuple[str, ...]:
    """Every keyword that the method of this analysis takes."""
    own = tuple(o.name for o in analysis.options)
    return (*own, *(WINDOW_KEYWORDS if analysis.windowed else ()), "rank", *ROW_KEYWORDS)


def parse_ranks(text: Ranks) -> list[int]:
    """`"0,3-5"` is ranks 0, 3, 4 and 5; a number or numbers are themselves."""
    if isinstance(text, Integral):
        return [int(text)]
    if not isinstance(text, str):
        return _numbers(text)
    ranks: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*0*([0-9]{1,18})\s*(?:-\s*0*([0-9]{1,18})\s*)?", part)
        if match is None:
            what = f"--rank {text[:100]!r}: {part.strip()[:100]!r} is not a rank"
            raise BadInput(what, "write numbers and spans, as in 0,3-5")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise BadInput(f"--rank {text!r}: {first}-{last} runs backwards", f"write {last}-{first}")
        if last - first > 1_000_000:
            raise BadInput(f"--rank {text!r}: {first}-{last} is not a span of ranks", "write numbers and spans")
        ranks += range(first, last + 1)
    return ranks


def _numbers(given: Any) -> list[int]:
    try:
        ranks = [int(rank) for rank in given]
    except (TypeError, ValueError):
        raise BadInput(
            f"--rank {given!r} names no ranks", "give a number, a list of them, or a text as in '0,3-5'"
        ) from None
    if not ranks:
        raise BadInput("--rank: no rank is given", "leave it out for all")
    return ranks


def parse_index(value: int | str) -> int | Literal["median", "all"]:
    """Which instance of the anchor: a number, `median` or `all`."""
    if value == "median" or value == "all":
        return value  # type: ignore[return-value]
    try:
        return int(value)
    except (TypeError, ValueError):
        raise BadInput(f"--index {value!r} is not an instance", "give a number, median or all") from None


def window_spec(
    profile: Profile | None = None,
    *,
    step: bool = False,
    chunk: bool = False,
    index: int | str = "median",
    start: Time | None = None,
    end: Time | None = None,
    **others: Any,
) -> WindowSpec:
    """The window that the keywords choose; where they choose none, that of the trainer's labels."""
    if step and chunk:
        raise BadInput("--step and --chunk cannot be combined", "give one")
    unit: Literal["step", "chunk"] | None = "step" if step else "chunk" if chunk else None
    first = None if start is None else moment(start, "--start")
    last = None if end is None else moment(end, "--end")
    if first is not None and first.ns < 0:
        raise BadInput(f"--start {start} is before the capture", "give a time from its beginning")
    chosen = unit or first is not None or last is not None or others.get("anchor") is not None or others.get("whole")
    if not chosen and profile is not None and profile.labels.anchor is not None:
        others["anchor"] = profile.labels.anchor
    given = (None if at is None else at.ns for at in (first, last))
    spec = WindowSpec(unit=unit, index=parse_index(index), start=next(given), end=next(given), **others)
    return spec if first is None or last is None or profile is None else _within(profile, spec, first, last)


def _within(profile: Profile, spec: WindowSpec, first: Moment, last: Moment) -> WindowSpec:
    """The span where it lies on each rank's clock; `BadInput` where no rank was captured then."""
    if first.absolute != last.absolute:
        raise BadInput("--start and --end are on two clocks", "write @ before both, or before neither")
    if not profile.has("ops") or not (begins := profile.begins()):
        return spec
    if not first.absolute:
        spec = replace(spec, begins=tuple(begins.items()))
    extents = profile.extents()
    spans = {rank: spec.span_of(rank) for rank in extents}
    if all(spans[rank][0] > last or spans[rank][1] <= first for rank, (first, last) in extents.items()):
        raise outside(extents, begins)
    return spec


def choices(hint: Any) -> tuple[Any, ...] | None:
    """The values that a `Literal` (or an optional one) allows; None for other types."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        alternatives = [choices(part) for part in get_args(hint) if part is not type(None)]
        return alternatives[0] if len(alternatives) == 1 else None
    return None


def several(hint: Any) -> bool:
    """Whether an option may be repeated."""
    return get_origin(hint) is tuple


def takes_profile(hint: Any) -> bool:
    """Whether an option is itself a profile, which users name by its path."""
    return Profile in (get_args(hint) or (hint,))


def takes_path(hint: Any) -> bool:
    """Whether an option is a file."""
    return Path in (get_args(hint) or (hint,))


def check(option: Option, value: Any) -> None:
    """Refuse a value that an option cannot have."""
    flag = "--" + option.name.replace("_", "-")
    allowed = choices(option.type)
    if allowed is not None and value not in allowed and value != option.default:
        raise BadInput(f"{flag} {value!r} is not a choice", f"give one of {', '.join(map(str, allowed))}")
    if option.type is bool and not any(value is known or value == known for known in (True, False)):
        raise BadInput(f"{flag} {value!r} is neither True nor False", "give one")
    if several(option.type) and not isinstance(value, str | Sequence):
        raise BadInput(f"{flag} {value!r} is not a text", "give one, or a list of them")
    kinds = set(get_args(option.type) or (option.type,)) - {type(None)}
    if value is not None and kinds and kinds <= {int, float}:
        check_number(flag, value, whole=float not in kinds)


def check_number(flag: str, value: Any, *, whole: bool = True) -> None:
    """Refuse all but numbers, and a number that is not finite: nothing is above it or below it."""
    if not isinstance(value, Integral) if whole else not (isinstance(value, Real) and math.isfinite(value)):
        raise BadInput(f"{flag} {value!r} is not a {'whole ' * whole}number", "give one")
