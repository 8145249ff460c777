"""Values with their units, for people. The unit of a column is the suffix of its name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import PurePath
from typing import Any

#: Suffixes that the header drops, because the values say them.
SUFFIXES = ("_ns", "_us", "_bytes", "_pct", "_gbps", "_ppm", "_tflops", "_flops")

#: Columns that are called what their unit is.
WHOLE = ("bytes", "flops")

#: Columns that hold points in time, not durations.
INSTANTS = ("start_ns", "end_ns")
#: Columns that hold differences of durations: they say their sign.
CHANGES = ("diff_ns", "low_ns", "high_ns")

TIME = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
OPERATIONS = tuple(
    (10.0**n, f"{prefix}FLOP") for n, prefix in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (0, ""))
)
MISSING = "-"
_ENTRY = {"key", "value"}


def header(name: str) -> str:
    """The column's name without its unit."""
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def show(name: str, value: Any) -> str:
    """`value` as a reader wants it, by the name of its column."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _formatter(name)(value)
    if isinstance(value, list) and value and all(isinstance(v, dict) and v.keys() == _ENTRY for v in value):
        return ", ".join(f"{show('', v['key'])}: {show(name, v['value'])}" for v in value)  # of a MAP
    if isinstance(value, list | tuple | set):
        return ", ".join(show(name, v) for v in value)
    if isinstance(value, dict):
        return ", ".join(f"{k} {show(k, v)}" for k, v in value.items())
    return " ".join(str(value).split())


def duration(ns: float) -> str:
    """Nanoseconds as tables have them: four digits, in the unit that leaves one to three of them before the point."""
    return " ".join(_in_unit(ns, 4))


def about(ns: float, digits: int = 3) -> str:
    """Nanoseconds as sentences have them: the same, with fewer digits and no zeros behind the last that counts."""
    value, unit = _in_unit(ns, digits)
    return f"{value.rstrip('0').rstrip('.') if '.' in value else value} {unit}"


def signed(ns: float) -> str:
    """A difference of nanoseconds in a sentence; it says its sign."""
    return plus(ns) + about(ns, 4)


def _in_unit(ns: float, digits: int) -> tuple[str, str]:
    """So many significant digits, and the unit."""
    size = abs(ns)
    for factor, unit in TIME:
        # 999.96 µs would round to 1000 µs: take the larger unit from there on.
        if size >= factor * (1 if factor == 1.0 else 1 - 0.5 * 10.0**-digits):
            return (f"{ns:.0f}" if factor == 1.0 else significant(ns / factor, digits)), unit
    return ("0" if ns == 0 else f"{ns:.3g}"), "ns"


def instant(ns: float) -> str:
    """A point in time: milliseconds to the microsecond, so that two of them can be told apart."""
    return f"{ns / 1e6:.3f} ms"


def size(count: float) -> str:
    for factor, unit in BYTES[:-1]:
        if abs(count) >= factor * 0.99995:
            return f"{_four(count / factor)} {unit}"
    return f"{count:.0f} B"


def operations(count: float) -> str:
    """Floating-point operations: `1.979 TFLOP`."""
    for factor, unit in OPERATIONS[:-1]:
        if abs(count) >= factor * 0.99995:
            return f"{_four(count / factor)} {unit}"
    return f"{count:.0f} FLOP"


def file_names(paths: Sequence[str | None]) -> list[str | None]:
    """The files without their directories, where that still tells them apart."""
    short = [None if p is None else PurePath(p).name for p in paths]
    return short if len(set(short)) == len(set(paths)) else list(paths)


#: By the end of a column's name; the first that fits.
_FORMATTERS: dict[str, Callable[[float], str]] = {
    **dict.fromkeys(INSTANTS, instant),
    **dict.fromkeys(CHANGES, lambda ns: plus(ns) + duration(ns)),
    **dict.fromkeys(("change_pct", "step_pct"), lambda share: f"{plus(round(share, 1))}{round(share, 1) + 0.0:.1f}%"),
    "_ns": duration,
    "_us": lambda us: duration(us * 1e3),
    "_bytes": size,
    "_pct": lambda share: f"{share:.1f}%",
    "_gbps": lambda rate: f"{_four(rate)} GB/s",
    "_tflops": lambda rate: f"{_four(rate)} TFLOP/s",
    "_flops": lambda count: operations(count),
    "_ppm": lambda drift: f"{drift:.3g} ppm",
}


@cache
def _formatter(name: str) -> Callable[[float], str]:
    """How numbers of this column are written."""
    name = f"_{name}" if name in WHOLE else name
    return next((write for suffix, write in _FORMATTERS.items() if name.endswith(suffix)), _plain)


def plus(change: float) -> str:
    """A change says its sign."""
    return "+" if change > 0 else ""


def _plain(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _four(value: float) -> str:
    """Four significant digits, without an exponent."""
    return significant(value, 4)


def significant(value: float, digits: int) -> str:
    """So many significant digits, without an exponent; all of those before the point."""
    size = abs(value)
    before = sum(size >= 10.0**n * (1 - 0.5 * 10.0**-digits) for n in range(1, digits)) + 1
    return f"{value:.{digits - before}f}"
