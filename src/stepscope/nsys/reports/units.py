"""Values in the unit that was asked for, as text: the digits that nsys prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from stepscope.errors import BadInput
from stepscope.nsys.reports.spec import Column, Unit

#: (divisor, decimals) by unit.
_TIME = {"ns": (1, None), "us": (10**3, 3), "ms": (10**6, 4), "sec": (10**9, 4)}
_BYTES = {
    "B": (1, None),
    "KB": (10**3, 2),
    "KiB": (2**10, 2),
    "MB": (10**6, 3),
    "MiB": (2**20, 3),
    "GB": (10**9, 3),
    "GiB": (2**30, 3),
}
_CATEGORY: dict[Unit, str] = {
    "ts_ns": "ts",
    "dur_ns": "dur",
    "mem_B": "mem",
    "thru_B": "thru",
    "addr_uint": "addr",
    "ratio_%": "ratio",
}
_META = {"time": ("ts", "dur"), "bytes": ("mem", "thru")}
_ALLOWED: dict[str, tuple[str, ...]] = {
    "ts": tuple(_TIME),
    "dur": tuple(_TIME),
    "mem": tuple(_BYTES),
    "thru": tuple(_BYTES),
    "addr": ("uint", "hex"),
    "ratio": ("%",),
}
_DEFAULT = {"ts": "ns", "dur": "ns", "mem": "MB", "thru": "MB", "addr": "hex", "ratio": "%"}
#: Units that `--timeunit` may abbreviate, with what columns call them.
_TIME_UNITS = {
    "nsec": "ns",
    "nanoseconds": "ns",
    "usec": "us",
    "microseconds": "us",
    "msec": "ms",
    "milliseconds": "ms",
    "seconds": "sec",
}


#: Floats between these are spelled alike by Python and Polars: with a point, without an exponent.
_PLAIN = (1e-4, 1e15)


@dataclass(frozen=True)
class Units:
    """How to show each category of values. `convert=False` leaves values as they were computed."""

    shown: Mapping[str, str] = field(default_factory=lambda: dict(_DEFAULT))
    convert: bool = True
    in_header: bool = True

    def of(self, column: Column) -> str | None:
        """The unit of a column, null where it has none."""
        if not column.unit:
            return None
        category, _, native = column.unit.partition("_")
        return self.shown[category] if self.convert else native

    def header(self, column: Column) -> str:
        unit = self.of(column)
        if unit is None or not self.in_header or column.unit == "addr_uint":
            return column.name
        return f"{column.name} ({unit}/s)" if column.unit == "thru_B" else f"{column.name} ({unit})"


def parse_units(texts: Iterable[str], timeunit: str | None = None) -> Units:
    """Unit specifications of a format, as in `mem=KiB`, `time=us`, `noconv`; `--timeunit` wins."""
    shown, convert, in_header = dict(_DEFAULT), True, True
    for text in texts:
        category, equals, unit = text.partition("=")
        if text in ("noconv", "nohdrunit"):
            convert, in_header = convert and text != "noconv", in_header and text != "nohdrunit"
        elif equals and category in (*_ALLOWED, *_META):
            for one in _META.get(category, (category,)):
                if unit not in _ALLOWED[one]:
                    raise BadInput(f"--format: no unit {unit!r} for {category}", f"one of {', '.join(_ALLOWED[one])}")
                shown[one] = unit
        else:
            raise BadInput(f"--format: cannot read {text!r}", "units are written category=unit, as in mem=KiB")
    if timeunit is not None:
        shown["ts"] = shown["dur"] = time_unit(timeunit)
    return Units(shown, convert, in_header)


def time_unit(text: str) -> str:
    """`us`, `usec`, `micro` and so on: the first unit that begins so."""
    matching = [short for name, short in _TIME_UNITS.items() if text and name.startswith(text)]
    if not matching:
        raise BadInput(f"--timeunit {text!r}: no such unit", f"one of {', '.join(_TIME_UNITS)}, or a beginning of it")
    return matching[0]


def texts(values: pl.Series, column: Column, units: Units) -> pl.Series:
    """A column as text, null for what it lacks."""
    unit = units.of(column)
    if column.unit == "addr_uint":
        return _each(values, lambda v: f"0x{v & (2**64 - 1):X}") if unit == "hex" else values.cast(pl.String)
    divisor, decimals = (1, None) if unit is None else {**_TIME, **_BYTES}.get(unit, (1, None))
    if decimals is None:
        if values.dtype.is_float():
            # nsys's median of whole bytes is whole, its mean is not.
            whole = column.unit == "mem_B" and column.name == "Med"
            if not whole and ((values == 0) | values.is_between(*_PLAIN)).all():
                return values.cast(pl.String)
            return _each(values, lambda v: str(int(v)) if whole and v.is_integer() else repr(v))
        return values.cast(pl.String)
    # nsys multiplies by the reciprocal, and a half-way value rounds as that product happens to fall.
    factor = 1 / divisor
    return _each(values, lambda v: f"{v * factor:.{decimals}f}")


def _each(values: pl.Series, text: Callable[[Any], str]) -> pl.Series:
    """`text` of every value, called once per distinct one: traces repeat sizes and durations."""
    distinct = values.unique()
    made = pl.Series([None if v is None else text(v) for v in distinct.to_list()], dtype=pl.String)
    texts = pl.DataFrame({"value": distinct, "text": made})
    frame = pl.DataFrame({"value": values})
    return frame.join(texts, on="value", how="left", nulls_equal=True, maintain_order="left")["text"].alias(values.name)
