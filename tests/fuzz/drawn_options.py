"""Options drawn from what commands declare: any that somebody might write, sensible or not."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from stepscope import api, questions
from stepscope.api.options import choices, takes_path, takes_profile
from stepscope.model.option import Option
from stepscope.model.profile import Profile

PATTERNS = ("step", "forward|backward", ".*", "nothing like this", "^$", r"\d+", "gemm", "nccl")
NUMBERS = (0, 1, 2, 3, 10, 1000, -1)
SHARES = (0, 0.5, 1, 10, 99.9, 100, -1, 1e9)
_LABELS = (None, None, None, None, "megatron", "torchtitan", "pithtrain")


def span_of(profile: Profile) -> tuple[int, int]:
    """First to last GPU op of the profile on its own clock; (0, 1000) where it has none."""
    if not profile.has("ops") or profile.ops.height == 0:
        return 0, 1000
    return int(profile.ops["start_ns"].min()), int(profile.ops["end_ns"].max())  # type: ignore[arg-type]


def instants(r: random.Random, profile: Profile) -> tuple[int, int]:
    """A window of the profile's clock: inside the capture, at its edges, of one op, of one instant, or outside."""
    lo, hi = span_of(profile)
    length = max(hi - lo, 1)
    kind = r.randrange(7)
    if kind == 0:  # of one op
        if profile.has("ops") and profile.ops.height:
            row = profile.ops.row(r.randrange(profile.ops.height), named=True)
            return row["start_ns"], max(row["end_ns"], row["start_ns"] + 1)
        return lo, hi
    if kind == 1:  # of one instant
        at = r.randrange(lo, hi + 1)
        return at, at + 1
    if kind == 2:  # across an edge
        return (
            (lo - r.randrange(length + 1), lo + r.randrange(1, length + 1))
            if r.random() < 0.5
            else (hi - r.randrange(1, length + 1), hi + r.randrange(1, length + 1))
        )
    if kind == 3:  # outside
        return (hi + r.randrange(1, length + 1), hi + 3 * length) if r.random() < 0.5 else (lo - 2 * length - 2, lo - 1)
    if kind == 4:  # all of it
        return lo, hi
    first, last = sorted(r.randrange(lo, hi + 1) for _ in range(2))
    return first, max(last, first + 1)


def times(r: random.Random, profile: Profile) -> dict[str, str]:
    """--start and --end, on either clock and in any unit."""
    first, last = instants(r, profile)
    if r.random() < 0.5:
        return {"start": f"@{first}", "end": f"@{last}"}
    lo, _ = span_of(profile)
    unit, of = r.choice((("ns", 1), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("", 1)))
    return {"start": f"{(first - lo) / of:.9f}{unit}", "end": f"{(last - lo) / of:.9f}{unit}"}


def window(r: random.Random, profile: Profile) -> dict[str, Any]:
    """Keywords that choose the window, by any of the ways there are."""
    kind = r.randrange(8)
    if kind in (0, 1):
        return times(r, profile)
    if kind == 2:
        return {"whole": True}
    chosen: dict[str, Any] = {}
    if kind in (3, 4):
        chosen["anchor"] = r.choice(PATTERNS)
        chosen["period"] = r.random() < 0.3
    elif kind == 5:
        chosen["step" if r.random() < 0.7 else "chunk"] = True
    if r.random() < 0.5:
        chosen["index"] = r.choice(("all", "median", 0, 1, -1, 2, 7, 1000))
    if r.random() < 0.1:
        chosen["match"] = True
    return chosen


def of_option(r: random.Random, option: Option) -> Any:
    """A value for an option, by its type."""
    if option.type is bool:
        return r.random() < 0.5
    if (allowed := choices(option.type)) is not None:
        return r.choice(allowed)
    kind = str(option.type)
    if "tuple" in kind or "list" in kind:
        return (r.choice(PATTERNS),) if "str" in kind else (r.choice(NUMBERS),)
    if "int" in kind:
        return r.choice(NUMBERS)
    if "float" in kind:
        return r.choice(SHARES)
    return r.choice(PATTERNS)


def options(r: random.Random, profile: Profile, name: str) -> dict[str, Any]:
    """Keywords of one question, as the Python method takes them."""
    analysis = questions.get(name)
    given: dict[str, Any] = {}
    for option in analysis.options:
        skipped = takes_profile(option.type) or takes_path(option.type)
        if not skipped and r.random() < 0.3:
            given[option.name] = of_option(r, option)
    if analysis.windowed:
        given |= window(r, profile)
    ranks = profile.rank_ids()
    if ranks and r.random() < 0.3:
        given["rank"] = r.choice((ranks[0], ranks[-1], f"{ranks[0]}-{ranks[-1]}", 4095))
    if r.random() < 0.3:
        column = r.choice(analysis.columns).name
        given["sort"] = r.choice((column, f"{column}:asc", f"{column}:desc,{analysis.columns[0].name}", "no_such"))
    for key, values in {"top": (0, 1, 3, -1), "limit": (0, 1, 5), "offset": (0, 1, 10_000)}.items():
        if r.random() < 0.15:
            given[key] = r.choice(values)
    return given


def labels(r: random.Random) -> str | None:
    return r.choice(_LABELS)


def opened(paths: tuple[Path, ...], labelled: str | None) -> Profile:
    return api.open(*paths, cache=False, labels=labelled)
