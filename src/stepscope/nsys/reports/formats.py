"""Answers as text, in the formats of nsys: column, table, csv, tsv, json, hdoc, htable.

Markdown, which nsys has not, is `render`'s.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

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
    if answer.frame.height == 0:
        return ""
    return _RENDERERS[format.name](answer, format)


def cells(answer: Answer, units: Units) -> pl.DataFrame:
    """Every cell as the text to print, null for what is missing; headers with units."""
    pairs = zip(answer.frame.get_columns(), answer.report.columns, strict=True)
    return pl.DataFrame({units.header(c): texts(values, c, units).alias("") for values, c in pairs})


def are_numbers(answer: Answer, units: Units) -> list[bool]:
    """Which columns are numbers as printed: hexadecimal addresses are not."""
    pairs = zip(answer.frame.dtypes, answer.report.columns, strict=True)
    return [dtype.is_numeric() and units.of(c) != "hex" for dtype, c in pairs]


def _csv(answer: Answer, format: Format) -> str:
    frame = cells(answer, format.units)
    # An empty text is written like a missing one.
    frame = frame.with_columns(pl.when(pl.all() != "").then(pl.all()))
    return frame.write_csv(include_header=format.header, quote_style="necessary")


def _tsv(answer: Answer, format: Format) -> str:
    frame = cells(answer, format.units).fill_null("")
    frame = frame.with_columns(pl.all().str.replace_all("\t", "\\t" if format.escape_tabs else " ", literal=True))
    lines = frame.select(pl.concat_str(pl.all(), separator="\t")).to_series().to_list()
    return "\n".join([*(["\t".join(frame.columns)] if format.header else []), *lines]) + "\n"


def _json(answer: Answer, format: Format) -> str:
    frame = cells(answer, format.units).fill_null("")
    numeric = are_numbers(answer, format.units)
    keys = [json.dumps(name, ensure_ascii=False) for name in frame.columns]

    def object_of(row: tuple[str, ...]) -> str:
        values = (v if n and v else json.dumps(v, ensure_ascii=False) for v, n in zip(row, numeric, strict=True))
        return "  {\n" + ",\n".join(f"    {k}: {v}" for k, v in zip(keys, values, strict=True)) + "\n  }"

    return "[\n" + ",\n".join(map(object_of, frame.iter_rows())) + "\n]\n"


def _layout(answer: Answer, format: Format) -> tuple[list[str], list[int], list[bool], Iterator[tuple[str, ...]]]:
    """Headers, widths, which columns are numbers, and the rows; hidden columns are gone."""
    frame = cells(answer, format.units).fill_null("")
    scanned = frame.head(format.scan) if format.scan else frame
    explicit = (*format.widths, *[None] * frame.width)[: frame.width]
    widths = {}
    for name, given in zip(frame.columns, explicit, strict=True):
        longest = scanned[name].str.len_chars().max()
        width = max(int(str(longest or 0)), len(name))
        limit = format.widest or width
        widths[name] = min(width, max(limit, len(name))) if given is None else given
    shown = [name for name in frame.columns if widths[name]]
    # A column that begins with nothing but blanks counts as text.
    numbers = dict(zip(frame.columns, are_numbers(answer, format.units), strict=True))
    numeric = [numbers[name] and bool((scanned[name] != "").any()) for name in shown]
    return shown, [widths[n] for n in shown], numeric, frame.select(shown).iter_rows()


def _cell(text: str, width: int, numeric: bool) -> str:
    if len(text) > width:
        return text[: width - 1] + _CLIPPED
    return text.rjust(width) if numeric else text.ljust(width)


def _centred(text: str, width: int) -> str:
    text = text if len(text) <= width else text[: width - 1] + _CLIPPED
    left = (width - len(text)) // 2
    return " " * left + text + " " * (width - len(text) - left)


def _column(answer: Answer, format: Format) -> str:
    names, widths, numeric, rows = _layout(answer, format)
    lines = []
    if format.header:
        lines.append([_centred(n, w) for n, w in zip(names, widths, strict=True)])
        lines.append(["-" * w for w in widths])
    lines += ([_cell(*c) for c in zip(row, widths, numeric, strict=True)] for row in rows)
    return "".join(f" {'  '.join(line)}\n" for line in lines)


def _table(answer: Answer, format: Format) -> str:
    names, widths, numeric, rows = _layout(answer, format)
    rule = "+" + "+".join("-" * (w + 2) for w in widths) + "+\n"
    body = "".join(
        "| " + " | ".join(_cell(*c) for c in zip(row, widths, numeric, strict=True)) + " |\n" for row in rows
    )
    if not format.header:
        return rule + body + rule
    header = "| " + " | ".join(_centred(n, w) for n, w in zip(names, widths, strict=True)) + " |\n"
    return rule + header + rule + body + rule


def _htable(answer: Answer, format: Format) -> str:
    frame = cells(answer, format.units).fill_null("")

    def row(tag: str, texts: Iterable[str]) -> str:
        inner = "".join(f"      <{tag}>{html.escape(text, quote=False)}</{tag}>\n" for text in texts)
        return f"    <tr>\n{inner}    </tr>\n"

    head = f"  <thead>\n{row('th', frame.columns)}  </thead>\n"
    return f"<table>\n{head}  <tbody>\n{''.join(row('td', r) for r in frame.iter_rows())}  </tbody>\n</table>\n"


def _hdoc(answer: Answer, format: Format) -> str:
    style = f'  <link rel="stylesheet" href="{html.escape(format.css)}">\n' if format.css else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n  <meta charset="UTF-8">\n'
        f"  <title>{html.escape(format.title, quote=False)}</title>\n{style}</head>\n<body>\n"
        f"<h1>{html.escape(answer.report.title, quote=False)} ({answer.report.name})</h1>\n"
        f"{_htable(answer, format)}</body>\n</html>\n"
    )


_RENDERERS: dict[str, Callable[[Answer, Format], str]] = {
    "csv": _csv,
    "tsv": _tsv,
    "json": _json,
    "column": _column,
    "table": _table,
    "hdoc": _hdoc,
    "htable": _htable,
}
