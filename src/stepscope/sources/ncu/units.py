"""Values as ncu prints them to numbers in units without prefixes: normalised here, once.

ncu scales what it prints (`14.97` `Mbyte`, `0.65` `Tbyte/s`, `38.66` `us`), and groups digits as the locale of the
machine does. Prefixes are powers of ten, for bytes too. Times become nanoseconds, rates become per second.
"""

from __future__ import annotations

import re
from functools import cache

import polars as pl

_PREFIX = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SCALED = re.compile(r"^([KMGTP]?)(byte|[hH]z)$")
#: Seconds, by every name that versions of ncu give them.
_SECONDS = {
    **dict.fromkeys(("s", "second"), 1.0),
    **dict.fromkeys(("ms", "msecond"), 1e-3),
    **dict.fromkeys(("us", "usecond"), 1e-6),
    **dict.fromkeys(("ns", "nsecond"), 1e-9),
}
#: What stands between groups of digits, beside the mark that is not the decimal one.
_GROUPS = "'’\u00a0\u202f "


@cache
def base_unit(unit: str) -> tuple[str, float]:
    """The unit without prefixes, and what a value in `unit` is to be multiplied by."""
    above, _, below = unit.strip().partition("/")
    name, factor = _part(above)
    if not below:
        if name == "s":
            return "ns", factor * 1e9
        return name, factor
    under, divisor = _part(below)
    if name == "cycle" and under == "s":
        return "hz", factor / divisor
    return f"{name}/{under}", factor / divisor


def _part(text: str) -> tuple[str, float]:
    if text in _SECONDS:
        return "s", _SECONDS[text]
    match = _SCALED.match(text)
    if match is None:
        return text, 1.0
    return match.group(2).lower(), _PREFIX[match.group(1)]


def needs_unit(metric: pl.Expr) -> pl.Expr:
    """Whether a metric of this name is printed scaled: without its unit nobody knows what the number says."""
    return metric.str.contains(r"time_duration|__bytes|_bytes[_.]|cycles_elapsed\.\w+\.per_second") & ~(
        metric.str.starts_with("derived__")
    )


def decimal_mark(values: pl.Series) -> str | None:
    """The mark before the decimals in this file: `.` or `,`; None where the file contradicts itself.

    A mark that is followed by other than three digits, or stands after the other mark, or comes last and only once
    beside it, is not a separator of thousands.
    """
    texts = values.drop_nulls().unique()
    texts = texts.filter(texts.str.contains(r"^[-+]?[\d" + _GROUPS + r".,]*\d[.,]\d+$"))
    seen = {
        mark: bool((texts.str.contains(rf"[{mark}](\d{{1,2}}|\d{{4,}})$") | texts.str.contains(other)).any())
        for mark, other in ((".", r",\d{3}\.\d+$"), (",", r"\.\d{3},\d+$"))
    }
    if seen["."] and seen[","]:
        return None
    return "," if seen[","] else "."


def numbers(values: pl.Expr, mark: str) -> pl.Expr:
    """Texts as numbers; null for what is none."""
    grouping = r"[" + _GROUPS + (r"," if mark == "." else r".") + r"]"
    plain = values.str.replace_all(grouping, "")
    return (plain if mark == "." else plain.str.replace(",", ".", literal=True)).cast(pl.Float64, strict=False)
