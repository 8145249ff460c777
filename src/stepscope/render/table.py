"""Tables for people: units beside the numbers, the window above, the notes below. Plain text unless on a terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from stepscope.model import heading
from stepscope.model.alike import alike
from stepscope.model.note import Note
from stepscope.model.result import Result
from stepscope.model.statement import STATEMENT
from stepscope.model.units import INSTANTS, MISSING, file_names, header, show
from stepscope.render import layout
from stepscope.render.arrange import arrange, lines
from stepscope.render.layout import wrapped

#: The width when output is not a terminal.
PIPED_WIDTH = 100

#: Columns of sentences.
_PROSE = ("why", "meaning", "text")

#: A summary entry that asks for a picture, and is not a figure itself.
PLOT = "plot"

#: Clocks that have run longer than this are counted from a round second instead.
_FAR_NS = 100_000_000_000
_SECOND = 1_000_000_000

_BOLD, _DIM, _RED, _GREEN, _YELLOW, _OFF = (f"\x1b[{code}m" for code in (1, 2, 31, 32, 33, 0))
#: How the result of a check is painted.
_STATUS = {"failed": _RED, "inconclusive": _YELLOW, "warning": _YELLOW, "missing": _RED, "ok": _GREEN, "passed": _GREEN}


def to_text(result: Result, width: int = PIPED_WIDTH, colour: bool = False) -> str:
    """The result as lines of text. Tables that cannot fit `width` are wider: numbers are never cut."""
    pen = Pen(colour)
    shown = result.for_people()
    out = [*opening(result, width, pen), ""]
    out += _rows(shown.rows, width, pen, result.begins)
    if shown.more:
        out.append(pen.dim(shown.more))
    if summary := _summary(result, width, pen):
        out += ["", *summary]
    if result.summary.get(PLOT):
        out += ["", *drawn(result, width)]
    if result.notes_below:
        out.append("")
    out += note_lines(result.notes_below, width, pen)
    if said := result.summary.get(STATEMENT):
        out += ["", *(pen.bold(line) for line in wrapped(said, width))]
    return "\n".join(out) + "\n"


def opening(result: Result, width: int, pen: Pen) -> list[str]:
    """Before any figure: what was asked of what, in which window; and whether the records can be trusted at all."""
    asked = ": ".join(filter(None, (result.command, heading.source_line(result))))
    plain = [asked, *(f"window: {line}" for line in heading.window_lines(result))]
    doubts = [f"not to be trusted: {note}" for note in result.doubts]
    out = [pen.dim(line) for text in plain for line in wrapped(text, width)]
    return out + [pen.yellow(line) for text in doubts for line in wrapped(text, width)]


def note_lines(notes: Iterable[Note], width: int, pen: Pen) -> list[str]:
    """Notes under the figures."""
    out = []
    for note in notes:
        first, *rest = wrapped(f"note: {note}", width, indent=6)
        out += [pen.yellow("note:") + first.removeprefix("note:"), *rest]
    return out


def drawn(result: Result, width: int) -> list[str]:
    """The picture that a result asks for, as lines of text."""
    if result.command == "roofline":
        from stepscope.render.roofline import roofline_plot

        return roofline_plot(result, width)
    if result.command == "compute":
        from stepscope.render.compute import budget_bar

        return budget_bar(result, width)
    if result.command == "memory":
        from stepscope.render.memory import memory_plot

        return memory_plot(result, width)
    from stepscope.render.plot import pace

    return pace(result.rows, width)


class Pen:
    """Styles, or nothing."""

    def __init__(self, colour: bool) -> None:
        self._colour = colour

    def _paint(self, style: str, text: str) -> str:
        return f"{style}{text}{_OFF}" if self._colour and text else text

    def bold(self, text: str) -> str:
        return self._paint(_BOLD, text)

    def dim(self, text: str) -> str:
        return self._paint(_DIM, text)

    def yellow(self, text: str) -> str:
        return self._paint(_YELLOW, text)

    def status(self, line: str, word: str) -> str:
        """A line of a table with the status of its check painted."""
        return re.sub(rf"(?<!\S){word}(?!\S)", self._paint(_STATUS.get(word, ""), word), line, count=1)


def to_rows(rows: pl.DataFrame, width: int, pen: Pen) -> list[str]:
    """Rows as a table, of a text that is not only one."""
    return _rows(rows, width, pen, {})


def _rows(rows: pl.DataFrame, width: int, pen: Pen, begins: dict[int, int]) -> list[str]:
    if rows.height == 0:
        return ["(no rows)"]
    rows, clock = counted(rows, begins)
    arranged = arrange(columns(rows), width)
    head, body = lines(arranged, width)
    below = [*arranged.below, *clock]
    if "status" in rows.columns:
        words = map(str, rows["status"])
        body = [[pen.status(line, word) for line in row] for row, word in zip(body, words, strict=True)]
    out = [*(pen.bold(line) for line in head[:-1]), pen.dim(head[-1]), *(line for row in body for line in row)]
    return out + [pen.dim(part) for line in below for part in wrapped(line, width)]


def counted(rows: pl.DataFrame, begins: dict[int, int]) -> tuple[pl.DataFrame, list[str]]:
    """Rows whose points in time count from the capture's beginning, and what to say of it below them.

    Where that is not known, and clocks are so far on that the digits of interest drown, they count from a second.
    """
    names = [name for name in rows.columns if _instant(rows, name)]
    rows = rows.with_columns(pl.col(name).cast(pl.Int64) for name in names if rows.schema[name].is_unsigned_integer())
    if not names or rows.height == 0:
        return rows, []
    if (base := _base(rows, begins)) is not None:
        return rows.with_columns(pl.col(names) - base), ["times are relative to the start of the capture"]
    least = [rows[name].min() for name in names]
    first = min((t for t in least if isinstance(t, int)), default=0)
    if first < _FAR_NS:
        return rows, []
    second = first // _SECOND
    return rows.with_columns(pl.col(names) - second * _SECOND), [
        f"times are relative to {second} s on the trace's clock"
    ]


def _base(rows: pl.DataFrame, begins: dict[int, int]) -> pl.Expr | None:
    """When the capture begins on the clock of each row."""
    if len(set(begins.values())) == 1:
        return pl.lit(next(iter(begins.values())))
    if not begins or "rank" not in rows.columns or not rows["rank"].is_in(list(begins)).all():
        return None
    return pl.col("rank").replace_strict(begins, return_dtype=pl.Int64)


def _instant(rows: pl.DataFrame, name: str) -> bool:
    """By name and type: in a query of SQL the name is the user's."""
    return name.endswith(INSTANTS) and rows.schema[name].is_numeric()


def columns(rows: pl.DataFrame) -> list[layout.Column]:
    """What is printed of each column: values with their units under the name without it."""
    made = []
    names = rows.columns
    skip = set()
    titles = headings(names)
    tree = {"depth", "path", "range"} <= set(names) and rows.schema["depth"].is_integer()
    for name in names:
        if name in skip:
            continue
        axis = name.removesuffix("_rank")
        values = rows[name].to_list()
        if name != axis and f"{axis}_size" in names:
            # A coordinate and its axis' size read best as one: 1/4.
            skip.add(f"{axis}_size")
            pairs = zip(values, rows[f"{axis}_size"].to_list(), strict=True)
            cells = [MISSING if a is None else f"{a}/{show('', b)}" for a, b in pairs]
            made.append(layout.Column(axis, cells, number=True))
            continue
        if name == "file" and rows.schema[name] == pl.String:
            values = file_names(values)
        number = rows.schema[name].is_numeric() or rows[name].null_count() == rows.height
        cells = alike(name, values)
        if tree and name == "range":
            # Rows are in the tree's order: indented texts say what paths would, which are long.
            cells = ["  " * (depth or 0) + cell for depth, cell in zip(rows["depth"].to_list(), cells, strict=True)]
        made.append(layout.Column(titles[name], cells, number, prose=name in _PROSE))
    return [c for c in made if not (tree and c.title in ("depth", "path"))]


def headings(names: Sequence[str]) -> dict[str, str]:
    """By column: its name, `%` for shares, and the unit only where two columns would read the same."""
    made = {name: header(name) + " %" * name.endswith("_pct") for name in names}
    seen = Counter(made.values())
    return {name: title if seen[title] == 1 else name.replace("_", " ") for name, title in made.items()}


def _summary(result: Result, width: int, pen: Pen) -> list[str]:
    """Single values on one line; tables within the summary as small tables under their name."""
    out: list[str] = []
    for title, figures in summarized(result):
        if isinstance(figures, str):
            out += wrapped(f"{title}: {figures}" if title else figures, width)
        else:
            out += [*([""] if out else []), pen.bold(title), *_rows(figures.rows, width, pen, result.begins)]
            out += [pen.dim(figures.more)] if figures.more else []
    return out


def summarized(result: Result) -> list[tuple[str, str | Result]]:
    """The figures over all rows, by title: single values as a text without one, others as texts or as small tables."""
    summary = result.summary
    parts: list[tuple[str, str | Result]] = []
    if line := single(summary, result.begins):
        parts.append(("", line))
    for key, value in summary.items():
        if not value or not _nested(value) or key in (PLOT, STATEMENT):
            continue
        table = _as_table(value)
        if table is not None and _repeats(table, result.rows):
            continue
        small = None if table is None else Result(table, ranked_by="", top=None if result.top is None else 0)
        parts.append((header(key), _pairs(value, result.begins) if small is None else small.for_people()))
    return parts


def single(summary: dict[str, Any], begins: dict[int, int]) -> str:
    """The single values of a summary on one line."""
    return _pairs({k: v for k, v in summary.items() if not _nested(v) and k not in (PLOT, STATEMENT)}, begins)


def _nested(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _as_table(value: Any) -> pl.DataFrame | None:
    if isinstance(value, list):
        return pl.DataFrame(value, infer_schema_length=None)
    if value and all(isinstance(v, dict) for v in value.values()):
        return pl.DataFrame([{"": str(k), **v} for k, v in value.items()], infer_schema_length=None)
    return None


def _repeats(table: pl.DataFrame, rows: pl.DataFrame) -> bool:
    """Whether a table of the summary says what the rows say: the same values by the same keys."""
    values = [name for name in table.columns if name]
    if table.height != rows.height or not values or not set(values) <= set(rows.columns):
        return False
    keys = table[""].to_list() if "" in table.columns else []
    keyed = any(rows[name].cast(pl.String, strict=False).to_list() == keys for name in rows.columns) if keys else True
    # Shares of a sum that was added up in another order differ in the last digit.
    nearly = [pl.col(pl.Float64).round(9)]
    return keyed and table.select(values).with_columns(nearly).equals(rows.select(values).with_columns(nearly))


def _pairs(values: dict[str, Any], begins: dict[int, int]) -> str:
    """Values by name; points in time count from the capture's beginning, where all ranks have one."""
    begin = next(iter(begins.values())) if len(set(begins.values())) == 1 else 0
    timed = {k: v - begin if str(k).endswith(INSTANTS) and isinstance(v, int) else v for k, v in values.items()}
    texts = {k: show(str(k), v) for k, v in timed.items()}
    return " · ".join(f"{header(str(k))} {text}" for k, text in texts.items() if text)  # an empty list says nothing
