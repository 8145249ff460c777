"""What a report is: a declaration. Its columns, its arguments, and a function from the profile's tables to rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import polars as pl

from stepscope.errors import BadInput
from stepscope.model.times import ABSOLUTE, nanoseconds

if TYPE_CHECKING:
    from stepscope.nsys.reports.view import View

#: The unit a column's values are computed in; output may convert them (see `units`).
Unit = Literal["", "ts_ns", "dur_ns", "mem_B", "thru_B", "ratio_%", "addr_uint"]
Value = bool | int | str | None


@dataclass(frozen=True)
class Column:
    """One column of a report: its name, and the unit of its values."""

    name: str
    unit: Unit = ""


def columns(*texts: str) -> tuple[Column, ...]:
    """`"Total Time:dur_ns"` is the column `Total Time` in nanoseconds."""
    return tuple(Column(*text.split(":", 1)) for text in texts)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Argument:
    """What may follow a report's name: `:base` (a flag) or `:rows=10`."""

    name: str
    type: type[bool] | type[int] | type[str]
    help: str
    default: Value = None
    #: Of a time: the unit of a number that has none. What a report gets is nanoseconds.
    plain: str = ""

    @property
    def initial(self) -> Value:
        """The default, as a report gets it."""
        return self.read(self.default, "") if self.plain and self.default is not None else self.default

    def read(self, value: Value, what: str) -> Value:
        """A value that was given; times may have a unit, and `@` before those of the trace's clock."""
        if not self.plain or value is None:
            return value
        return nanoseconds(str(value).removeprefix(ABSOLUTE), what, self.plain)


#: A part of the capture.
SPAN = (
    Argument("start", int, "leave out what ended before this time (ns, or 1ms)", plain="ns"),
    Argument("end", int, "leave out what started after this time (ns, or 1ms)", plain="ns"),
)
#: Every report can be asked for one.
PART = (
    *SPAN,
    Argument("nvtx", str, "only during this NVTX range, and in its process or thread: name[@domain][/index]"),
)
BASE = Argument("base", bool, "kernels by their name without templates and parameters", False)
MANGLED = Argument("mangled", bool, "kernels by their mangled name, where the trace has it", False)
NVTX_NAME = Argument("nvtx-name", bool, "put the innermost NVTX range of the launch before the kernel's name", False)


class Args(dict[str, Value]):
    """Parsed arguments: every argument of the report is a key."""

    def flag(self, name: str) -> bool:
        return bool(self.get(name))

    def number(self, name: str) -> int:
        value = self[name]
        assert isinstance(value, int)
        return value


@dataclass(frozen=True)
class Rows:
    """Rows on their way to a report. Columns named in `texts` hold codes: the position of their text there."""

    frame: pl.DataFrame
    texts: Mapping[str, pl.Series] = field(default_factory=dict)

    def decoded(self, frame: pl.DataFrame | None = None) -> pl.DataFrame:
        """The frame (or what was made of it) with texts for codes."""
        frame = self.frame if frame is None else frame
        return frame.with_columns(
            texts.gather(frame[name].fill_null(0)).alias(name).set(frame[name].is_null(), None)
            if len(texts)
            else pl.repeat(None, frame.height, dtype=pl.String, eager=True).alias(name)
            for name, texts in self.texts.items()
            if name in frame.columns
        )


Query = Callable[["View", Args], pl.DataFrame]


@dataclass(frozen=True)
class Report:
    """A report or a rule. `query` gives the columns in order, in base units, under any names."""

    name: str
    title: str
    columns: tuple[Column, ...]
    query: Query
    doc: str = ""
    args: tuple[Argument, ...] = ()
    #: Only rules have advice: what the rows mean, and what to try.
    advice: str = ""

    def parse(self, texts: list[str]) -> Args:
        """Arguments as written after the name, each once, in any order."""
        declared = {a.name: a for a in (*self.args, *PART)}
        args = Args({a.name: a.initial for a in declared.values()})
        for text in texts:
            name, _, value = text.partition("=")
            if name not in declared:
                raise BadInput(f"{self.name}: no argument {name!r}", f"it takes {', '.join(declared)}")
            args[name] = _value(self.name, declared[name], value if "=" in text else None)
        return args


def _value(report: str, argument: Argument, text: str | None) -> Value:
    if argument.type is bool:
        if text is not None:
            raise BadInput(f"{report}:{argument.name} takes no value", f"write {report}:{argument.name}")
        return True
    if text is None:
        raise BadInput(f"{report}:{argument.name} needs a value", f"write {report}:{argument.name}=…")
    if argument.plain:
        return argument.read(text, f"{report}:{argument.name}")
    if argument.type is str:
        return text
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"{report}:{argument.name}={text}: not a whole number", "give one") from None
