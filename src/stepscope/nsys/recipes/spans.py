"""`--start` and `--end` of recipes: a text with a unit counts from the capture's beginning, as in every command.

A plain number is in nanoseconds on the trace's clock, as nsys's recipes have it; `@` says the same of any time.
"""

from __future__ import annotations

from collections.abc import Mapping

from stepscope.errors import BadInput
from stepscope.model.beginning import outside
from stepscope.model.profile import Profile
from stepscope.model.times import moment
from stepscope.nsys.reports.spec import Args, Value


def on_clock(profile: Profile, given: Mapping[str, Value]) -> dict[str, Value]:
    """The arguments with times on the trace's clock."""
    times = {key: value for key in ("start", "end") if isinstance(value := given.get(key), str) and _counts(value)}
    if not times or not profile.has("ops") or not (begins := set(profile.begins().values())):
        return dict(given)
    if len(begins) > 1:
        (key, value), *_ = times.items()
        raise BadInput(
            f"--{key} {value}: the files begin at different times",
            "ask one of them, or write @ before times of the trace's own clock",
        )
    (begin,) = begins
    return {**given, **{key: begin + moment(value, f"--{key}").ns for key, value in times.items()}}


def _counts(text: str) -> bool:
    """Whether a time counts from the capture's beginning."""
    return not text.strip().lstrip("+-").isdigit() and not moment(text, "--start").absolute


def refusal(profile: Profile, args: Args) -> BadInput | None:
    """Of a span in which nothing was captured."""
    low, high = args.get("start"), args.get("end")
    extents = profile.extents() if profile.has("ops") and not low == high is None else {}
    if not extents or any(
        (low is None or int(low) < last) and (high is None or int(high) > first) for first, last in extents.values()
    ):
        return None
    return outside(profile.extents(), profile.begins())
