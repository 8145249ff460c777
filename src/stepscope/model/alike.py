"""The numbers of one column, for people: in one unit, so that they can be compared without reading the units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from stepscope.model.units import BYTES, CHANGES, INSTANTS, OPERATIONS, TIME, WHOLE, plus, show, significant

#: Digits behind the point at most; what is smaller than their last keeps its own unit: it would read as zero.
_DECIMALS = 3
_LEAST = 0.5 * 10.0**-_DECIMALS
#: Where half of the values are less than this in the unit of the largest, the next smaller unit is taken, as long as
#: the largest stays below so many of it.
_SMALL, _MOST = 0.01, 1e5

_UNITS = {"_ns": TIME, "_us": TIME, "_bytes": BYTES, "_flops": OPERATIONS}


def alike(name: str, values: Sequence[Any]) -> list[str]:
    """Each value as a reader wants it, by the name of their column."""
    factors = None if name.endswith(INSTANTS) else _units_of(name)
    sizes = [abs(v) for v in values if _is_number(v) and v]
    if factors is None or not sizes or not all(v is None or _is_number(v) for v in values):
        return [show(name, v) for v in values]
    scale = 1e3 if name.endswith("_us") else 1.0
    factor, unit = _unit([scale * size for size in sizes], factors)
    sign = name.endswith(CHANGES)

    def cell(value: Any) -> str:
        if not _is_number(value) or value == 0:
            return f"0 {unit}" if value == 0 else show(name, value)
        size = value * scale / factor
        if abs(size) < _LEAST and factor > 1:
            return show(name, value)
        digits = _digits(size) if factor > 1 or abs(size) < 1 else f"{size:.0f}"
        return f"{plus(value) if sign else ''}{digits} {unit}"

    return [cell(value) for value in values]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _units_of(name: str) -> tuple[tuple[float, str], ...] | None:
    """The units that a column's values may be in, the largest first; none where all are in the same anyway."""
    name = f"_{name}" if name in WHOLE else name
    return next((units for suffix, units in _UNITS.items() if name.endswith(suffix)), None)


def _unit(sizes: list[float], units: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    """The unit for values of these sizes."""
    largest, middle = max(sizes), median(sizes)
    # 999.96 µs would be written as 1000 µs: as where a value stands alone.
    at = next((i for i, (factor, _) in enumerate(units) if largest >= factor * 0.99995), len(units) - 1)
    while at + 1 < len(units) and middle < _SMALL * units[at][0] and largest < _MOST * units[at + 1][0]:
        at += 1
    return units[at]


def _digits(size: float) -> str:
    """Four significant digits, and no more behind the point than say something."""
    text = significant(size, 4)
    return text if len(text.partition(".")[2]) <= _DECIMALS else f"{size:.{_DECIMALS}f}"
