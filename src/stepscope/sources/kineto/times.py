"""Decimal microseconds to integer nanoseconds, exactly.

A Kineto time is a decimal number of microseconds with at most three decimals. As a float64 its fraction is good to less
than half a nanosecond below 2^43 µs (101 days), so splitting off the whole microseconds before scaling gives the
written nanosecond. Beyond that (microseconds since 1970 with a fraction), and where there are more decimals than a
float64 holds, the text itself is parsed.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any

import numpy as np

from stepscope.intervals.arrays import F64, I64, Mask

_EXACT_BELOW = float(2**43)
#: Below this a float64 holds a picosecond: more decimals than three do no harm.
_PICOSECONDS_BELOW = float(2**30)
#: Nothing is later than this: 2^53 µs is 285 years, and nanoseconds must fit 63 bits.
_LATEST = float(2**53)
_YEAR_NS = 366 * 86_400 * 10**9
_FRACTION = re.compile(rb'"ts"\s*+:\s*+"?+-?+\d++(?:\.\d*[1-9]|\.?+\d*+[eE])')
_MANY_DECIMALS = re.compile(rb'"ts"\s*+:\s*+"?+-?+\d++(?:\.\d{3}\d|\.?+\d*+[eE])')
#: A file that writes more than three decimals does so everywhere: its first events tell.
_SAMPLE_BYTES = 1 << 13


def nanoseconds(ts: F64, dur: F64) -> tuple[I64, I64, Mask]:
    """Start and end in nanoseconds, and which rows are sane: finite, not negative in length, shorter than a year."""
    sane = np.isfinite(ts) & np.isfinite(dur) & (np.abs(ts) < _LATEST) & (np.abs(dur) <= _YEAR_NS / 1000)
    ts, dur = np.where(sane, ts, 0.0), np.where(sane, dur, 0.0)
    whole, length = np.floor(ts), np.floor(dur)
    fraction = ts - whole
    start = whole.astype(np.int64) * 1000 + np.rint(fraction * 1000).astype(np.int64)
    # The end is rounded from the exact sum: rounding start and length apart would make neighbours overlap by 1 ns.
    end = (whole + length).astype(np.int64) * 1000 + np.rint((fraction + (dur - length)) * 1000).astype(np.int64)
    return start, end, sane & (dur >= 0)


def needs_text(ts: F64, text: bytes) -> bool:
    """Whether float64 may have lost a nanosecond of these times, so that `exact_nanoseconds` is needed."""
    finite = ts[np.isfinite(ts)]
    if not finite.size:
        return False
    largest = float(np.abs(finite).max())
    if largest < _PICOSECONDS_BELOW:
        return False
    if largest >= _EXACT_BELOW:
        return _FRACTION.search(text) is not None
    scaled = (finite - np.floor(finite)) * 1000
    # Three decimals come back within half a step of the float; anything farther from a whole number has more.
    error = np.spacing(np.abs(finite)) * 500 + 1e-6
    return bool(np.any(np.abs(scaled - np.rint(scaled)) > error)) or _has_many_decimals(text)


def _has_many_decimals(text: bytes) -> bool:
    return _MANY_DECIMALS.search(text, 0, _SAMPLE_BYTES) is not None


def exact_nanoseconds(pairs: list[tuple[Any, Any]]) -> tuple[I64, I64, Mask]:
    """`nanoseconds` of times given as decimals (or texts of them): slow, and exact at any size."""
    start, end = np.zeros(len(pairs), np.int64), np.zeros(len(pairs), np.int64)
    sane = np.zeros(len(pairs), np.bool_)
    for row, (ts, dur) in enumerate(pairs):
        begin, length = _decimal(ts), _decimal(dur)
        if begin is None or length is None or abs(begin) >= _LATEST or not 0 <= length <= _YEAR_NS / 1000:
            continue
        start[row], end[row] = _rounded(begin), _rounded(begin + length)
        sane[row] = True
    return start, end, sane


def _rounded(microseconds: Decimal) -> int:
    return int((microseconds * 1000).to_integral_value(ROUND_HALF_EVEN))


def _decimal(value: Any) -> Decimal | None:
    if isinstance(value, bool):
        return None
    try:
        number = Decimal(value)
    except (InvalidOperation, TypeError, ValueError):
        return None
    return number if number.is_finite() else None
