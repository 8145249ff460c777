"""Answers as text, in the formats of nsys: column, table, csv, tsv, json, hdoc, htable.

Markdown, which nsys has not, is `render`'s.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import polars as pl

from stepscope.errors import BadInput
from stepscope.nsys.reports import Answer
from stepscope.nsys.reports.units import Units, parse_units, texts

#: Names, and the suffix of files in that format.
SUFFIXES = {
    "column": ".txt",
    "table": ".txt",
    "csv": ".csv",
    "tsv": ".tsv",
    "json": ".json",
    "md": ".md",
    "hdoc": ".html",
    "htable": ".html",
}
_CLIPPED = "…"
#: Rows whose text is made together.
_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Format:
    """A format with its arguments: units, and how wide columns may become."""

    name: str
    units: Units = field(default_factory=Units)
    header: bool = True
    escape_tabs: bool = False
    scan: int = 100  # rows that decide the widths; 0 for all
    widest: int = 100  # characters of the widest column; 0 for no limit
    widths: tuple[int | None, ...] = ()  # explicit ones; 0 hides a column
    title: str = "Nsight Systems Stats Output"  # of an HTML document
    css: str = ""  # its style sheet


def parse_format(text: str, timeunit: str | None = None) -> Format:
    """`name[:argument…]`, as in `csv:mem=KiB:nohdr` or `column:colmax=40`."""
    name, *arguments = text.split(":")
    if name not in SUFFIXES:
        raise BadInput(f"--format {name!r}: no such format", f"one of {', '.join(SUFFIXES)}")
    header, escape, scan, widest = True, False, 100, 100
    widths: list[int | None] = []
    units: list[str] = []
    document: dict[str, str] = {}
    for argument in arguments:
        key, _, value = argument.partition("=")
        if argument == "nohdr":
            header = False
        elif argument == "esc":
            escape = True
        elif argument == "nofmt":
            pass  # numbers are never regrouped here
        elif key in ("autolines", "colmax") and value.isdigit():
            scan, widest = (int(value), widest) if key == "autolines" else (scan, int(value))
        elif name == "hdoc" and key in ("title", "css"):
            document[key] = value
        elif argument == "." or argument.isdigit():
            widths.append(None if argument == "." else int(argument))
        else:
            units.append(argument)
    return Format(name, parse_units(units, timeunit), header, escape, scan, widest, tuple(widths), **document)


def render(answer: Answer, format: Format) -> str:
    """The whole text, a newline at its end; nothing where there are no rows."""
    return "".join(pieces(answer, format))


def pieces(answer: Answer, format: Format) -> Iterator[str]:
    """The text, some rows at a time: that of a million rows takes many times the memory of their figures."""
    return _RENDERERS[format.name](answer, format) if answer.frame.height else iter(())


def cells(answer: Answer, units: Units, frame: pl.DataFrame | None = None) -> pl.DataFrame:
    """Every cell (of these rows of the answer) as the text to print, null for what is missing; headers with units."""
    pairs = zip((answer.frame if frame is None else frame).get_columns(), answer.report.columns, strict=True)
    return pl.DataFrame({units.header(c): texts(values, c, units).alias("") for values, c in pairs})


def _parts(answer: Answer, format: Format) -> Iterator[pl.DataFrame]:
    """The cells, some rows at a time, with nothing for what is missing."""
    for rows in answer.frame.iter_slices(_AT_ONCE):
        yield cells(answer, format.units, rows).fill_null("")


def are_numbers(answer: Answer, units: Units) -> list[bool]:
    """Which columns are numbers as printed: hexadecimal addresses are not."""
    pairs = zip(answer.frame.dtypes, answer.report.columns, strict=True)
    return [dtype.is_numeric() and units.of(c) != "hex" for dtype, c in pairs]


def _csv(answer: Answer, format: Format) -> Iterator[str]:
    header = format.header
    for part in _parts(answer, format):
        # An empty text is written like a missing one.
        frame = part.with_columns(pl.when(pl.all() != "").then(pl.all()))
        yield frame.write_csv(include_header=header, quote_style="necessary")
        header = False


def _tsv(answer: Answer, format: Format) -> Iterator[str]:
    header = format.header
    for part in _parts(answer, format):
        frame = part.with_columns(pl.all().str.replace_all("\t", "\\t" if format.escape_tabs else " ", literal=True))
        lines = frame.select(pl.concat_str(pl.all(), separator="\t")).to_series().to_list()
        yield "\n".join([*(["\t".join(frame.columns)] if header else []), *lines]) + "\n"
        header = False


def _json(answer: Answer, format: Format) -> Iterator[str]:
    numeric = are_numbers(answer, format.units)
    keys = [json.dumps(format.units.header(column), ensure_ascii=False) for column in answer.report.columns]

    def object_of(row: tuple[str, ...]) -> str:
        values = (v if n and v else json.dumps(v, ensure_ascii=False) for v, n in zip(row, numeric, strict=True))
        return "  {\n" + ",\n".join(f"    {k}: {v}" for k, v in zip(keys, values, strict=True)) + "\n  }"

    before = "[\n"
    for part in _parts(answer, format):
        yield before + ",\n".join(map(object_of, part.iter_rows()))
        before = ",\n"
    yield "\n]\n"


@dataclass(frozen=True)
class _Layout:
    """The columns that are shown: their headers, widths, and which are numbers."""

    names: list[str]
    widths: list[int]
    numeric: list[bool]


def _layout(answer: Answer, format: Format) -> _Layout:
    """Of the rows that decide the widths; hidden columns are gone."""
    columns = [format.units.header(column) for column in answer.report.columns]
    explicit = (*format.widths, *[None] * len(columns))[: len(columns)]
    longest, filled = dict.fromkeys(columns, 0), dict.fromkeys(columns, False)
    scanned = replace(answer, frame=answer.frame.head(format.scan)) if format.scan else answer
    for part in _parts(scanned, format):
        for name in columns:
            longest[name] = max(longest[name], int(str(part[name].str.len_chars().max() or 0)))
            filled[name] |= bool((part[name] != "").any())
    widths = {}
    for name, given in zip(columns, explicit, strict=True):
        width = max(longest[name], len(name))
        limit = format.widest or width
        widths[name] = min(width, max(limit, len(name))) if given is None else given
    shown = [name for name in columns if widths[name]]
    # A column that begins with nothing but blanks counts as text.
    numbers = dict(zip(columns, are_numbers(answer, format.units), strict=True))
    return _Layout(shown, [widths[n] for n in shown], [numbers[n] and filled[n] for n in shown])


def _rows(answer: Answer, format: Format, layout: _Layout) -> Iterator[list[list[str]]]:
    """The cells of each row at their widths, some rows at a time."""
    for part in _parts(answer, format):
        rows = part.select(layout.names).iter_rows()
        yield [[_cell(*c) for c in zip(row, layout.widths, layout.numeric, strict=True)] for row in rows]


def _cell(text: str, width: int, numeric: bool) -> str:
    if len(text) > width:
        return text[: width - 1] + _CLIPPED
    return text.rjust(width) if numeric else text.ljust(width)


def _centred(text: str, width: int) -> str:
    text = text if len(text) <= width else text[: width - 1] + _CLIPPED
    left = (width - len(text)) // 2
    return " " * left + text + " " * (width - len(text) - left)


def _column(answer: Answer, format: Format) -> Iterator[str]:
    layout = _layout(answer, format)
    if format.header:
        centred = [_centred(n, w) for n, w in zip(layout.names, layout.widths, strict=True)]
        yield _spaced([centred, ["-" * w for w in layout.widths]])
    yield from map(_spaced, _rows(answer, format, layout))


def _spaced(lines: list[list[str]]) -> str:
    return "".join(f" {'  '.join(line)}\n" for line in lines)


def _table(answer: Answer, format: Format) -> Iterator[str]:
    layout = _layout(answer, format)
    rule = "+" + "+".join("-" * (w + 2) for w in layout.widths) + "+\n"
    yield rule
    if format.header:
        yield _ruled([[_centred(n, w) for n, w in zip(layout.names, layout.widths, strict=True)]]) + rule
    yield from map(_ruled, _rows(answer, format, layout))
    yield rule


def _ruled(lines: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _htable(answer: Answer, format: Format) -> Iterator[str]:
    def row(tag: str, texts: Iterable[str]) -> str:
        inner = "".join(f"      <{tag}>{html.escape(text, quote=False)}</{tag}>\n" for text in texts)
        return f"    <tr>\n{inner}    </tr>\n"

    headers = row("th", map(format.units.header, answer.report.columns))
    yield f"<table>\n  <thead>\n{headers}  </thead>\n  <tbody>\n"
    for part in _parts(answer, format):
        yield "".join(row("td", texts) for texts in part.iter_rows())
    yield "  </tbody>\n</table>\n"


def _hdoc(answer: Answer, format: Format) -> Iterator[str]:
    style = f'  <link rel="stylesheet" href="{html.escape(format.css)}">\n' if format.css else ""
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n  <meta charset="UTF-8">\n'
        f"  <title>{html.escape(format.title, quote=False)}</title>\n{style}</head>\n<body>\n"
        f"<h1>{html.escape(answer.report.title, quote=False)} ({answer.report.name})</h1>\n"
    )
    yield from _htable(answer, format)
    yield "</body>\n</html>\n"


_RENDERERS: dict[str, Callable[[Answer, Format], Iterator[str]]] = {
    "csv": _csv,
    "tsv": _tsv,
    "json": _json,
    "column": _column,
    "table": _table,
    "hdoc": _hdoc,
    "htable": _htable,
}
