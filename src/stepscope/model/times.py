"""Times as users write them: `1ms`, `2.5s`, `800us`, `1s500ms`. One owner for every option that takes one."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple

from stepscope.errors import BadInput

_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
#: As nsys spells them, and as people do.
_ALIASES = {"nsec": "ns", "usec": "us", "µs": "us", "μs": "us", "msec": "ms", "sec": "s", "min": "m", "hour": "h"}
_TERM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s?([a-zµμ]*)")


def nanoseconds(value: str | float, what: str, plain: str = "ns") -> int:
    """A time in nanoseconds; `what` names the option in an error. A number without a unit is in `plain`.

    Terms add up, as in nsys: `1s500ms`. Digits are exact: times of a trace may have nineteen.
    """
    text = str(value).strip()
    total, at = 0, 0
    for term in _TERM.finditer(text):
        unit = _ALIASES.get(term[2], term[2]) or plain
        if term.start() != at or unit not in _UNITS:
            break
        total += int(Decimal(term[1]) * _UNITS[unit])
        at = term.end()
    if at != len(text) or not text:
        raise BadInput(
            f"{what} {text!r}: not a time", f"write it as 1ms, 2.5s, 800us or 100ns; a plain number is in {plain}"
        )
    if total >= 1 << 62:
        raise BadInput(f"{what} {text:.40}: too long a time", "no capture takes a century")
    return total


#: What stands before a time of the trace's own clock.
ABSOLUTE = "@"


class Moment(NamedTuple):
    """A point in time: since the capture's beginning, or on the clock of the trace."""

    ns: int
    absolute: bool


def moment(value: str | int, what: str) -> Moment:
    """`100ms` from the capture's beginning on; `@3877350851.958ms` on the trace's clock.

    A number that is not a text is on the trace's clock, as in every column.
    """
    if not isinstance(value, str):
        return Moment(nanoseconds(value, what), absolute=True)
    text = value.strip()
    return Moment(nanoseconds(text.removeprefix(ABSOLUTE), what), text.startswith(ABSOLUTE))
