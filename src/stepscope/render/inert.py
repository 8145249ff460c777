"""Texts of a trace, made to do nothing where they are shown.

Names come from whoever wrote the program: no escape of theirs may reach a terminal, no markup a page, no formula a
spreadsheet. JSON and Parquet keep names as they are; what a terminal could take for an order is written as an escape.
"""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape as plain_markup
from typing import Any

import polars as pl

from stepscope.model.note import Note
from stepscope.model.result import Result
from stepscope.model.visible import ORDERS, visible

#: What JSON leaves as it is of them.
_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
#: What makes a spreadsheet take a text for a formula.
_FORMULA = r"^[=+\-@\t\r]"
#: What Markdown or the forge around it would take for something else. A backslash before it makes it plain again.
_SPECIAL = re.compile(r"([\\`*\[\]|~$]|(?<!\w)_|_(?!\w)|^[#+-](?= ))")


def escape(text: str, quote: bool = True) -> str:
    """A text as HTML shows it: no markup, and no mark that turns the direction of what stands around it."""
    return plain_markup(visible(text), quote)


def shown_json(text: str) -> str:
    """JSON for a page: what would turn the direction of a text is written out, so that the page shows it."""
    return _IN_JSON.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text)


def in_json(text: str) -> str:
    """JSON that is the same to a program, and does nothing to a terminal."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def visible_rows(frame: pl.DataFrame) -> pl.DataFrame:
    """Texts of all columns, as `visible` has them."""
    changed = []
    for column in frame:
        if column.dtype == pl.String and column.str.contains(ORDERS).any():
            changed.append(column.map_elements(visible, pl.String))
        elif column.dtype.is_nested():
            changed.append(pl.Series(column.name, [_inner(v) for v in column.to_list()], column.dtype))
    return frame.with_columns(changed)


def visible_result(result: Result) -> Result:
    """The result, all texts of it as `visible` has them."""
    return replace(
        result,
        rows=visible_rows(result.rows),
        window=_inner(result.window),
        summary=_inner(result.summary),
        notes=[Note.from_data(_inner(n.data())) if isinstance(n, Note) else visible(n) for n in result.notes],
        sources=[replace(s, file=visible(s.file), tool=_inner(s.tool)) for s in result.sources],
    )


def _inner(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {_inner(k): _inner(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_inner, value)) if type(value) in (list, tuple) else value
    return value


def no_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """Texts that a spreadsheet would compute begin with an apostrophe."""
    texts = pl.col(pl.String)
    return frame.with_columns(pl.when(texts.str.contains(_FORMULA)).then("'" + texts).otherwise(texts).name.keep())


def markdown(value: Any) -> str:
    """A text that Markdown shows as it is: no markup, no tags, nobody is mentioned, no issue is linked."""
    plain = visible(" ".join(str(value).split()))
    plain = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"(@|#(?=\d))", r"\1<!-- -->", _SPECIAL.sub(r"\\\1", plain))
