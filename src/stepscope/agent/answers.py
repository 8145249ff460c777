"""A result as one answer that fits an agent's context: a page of rows, and what they rest on.

An answer is sent twice, as structured content and as the text that older clients read. Tokens are not counted but
bounded: two bytes of JSON are a token, though digits, names and punctuation take about three.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from math import floor, isfinite, log10
from typing import Any, Literal

import msgspec
import numpy as np
import polars as pl

from stepscope.agent.options import call_of
from stepscope.model import heading
from stepscope.model.result import Result
from stepscope.model.statement import STATEMENT
from stepscope.render.json import plain

Detail = Literal["concise", "full"]

#: The most that an answer may be, and what of that we use: some clients add words of their own.
MOST_TOKENS = 25_000
BYTES_PER_TOKEN = 2
_BUDGET = 23_000  # bytes of one of the two copies
#: What may be taken by the window, the summary and the notes, each.
_PART = 3_500
_RESERVE = 800  # for the page, the link, and what is left out
#: Of rows that are ranked the first, of others as many as a reader can take in.
_CONCISE_ROWS, _UNRANKED_ROWS = 20, 100
_DIGITS = 6
#: A cell that is longer is cut: the resource has all of it.
_LONGEST_TEXT = 1_000
_LONGEST_LIST = 4_000
_CONCISE_LIST = 300
_AS_PRINTED = "as the command prints them"


@dataclass
class Asked:
    """A question that was answered: what asking it again takes, and the result."""

    tool: str
    arguments: dict[str, Any]  # without page and detail
    key: str
    result: Result
    command: str
    gate: str | None = None
    #: by row, the command line that a finding cites, before it names files
    cited: list[str] = field(default_factory=list)


def answer(asked: Asked, detail: Detail, first: int, most: int | None) -> dict[str, Any]:
    """The rows from `first` on, as many as fit, at most `most`."""
    result = asked.result
    left_out: dict[str, str] = {}
    body: dict[str, Any] = {"command": _cut(asked.command)}
    if said := result.summary.get(STATEMENT):
        body["statement"] = _cut(str(said))
    if asked.gate:
        body["gate"] = asked.gate
    body["profile"] = heading.source_line(result) if result.sources else "none"
    windows: list[Any] = result.window if detail == "full" else heading.window_lines(result)
    body["window"] = _fitting(windows, "window", left_out)
    body["notes"] = _fitting([_note(n, detail) for n in result.notes], "notes", left_out)
    body["summary"] = _summary(result, detail, left_out)
    order, how = _order(result, detail)
    rows = _rows(asked, order[first:], detail, most, left_out)
    room = _BUDGET - size(body) - size(left_out) - size(asked.arguments) - _RESERVE
    kept = _as_fit(rows, room, left_out)
    body["rows"] = kept
    done = first + len(kept)
    following = None
    if done < len(order):
        page = {"limit": most, "cursor": f"{asked.key}.{detail}.{done}"}
        again = {**asked.arguments, "detail": detail, **{k: v for k, v in page.items() if v is not None}}
        following = {"tool": asked.tool, "arguments": again}
    body["page"] = {"first": first, "rows": len(kept), "of": len(order), "order": how, "next": following}
    if left_out:
        body["left_out"] = left_out
    return body


def size(value: Any) -> int:
    """Bytes of a value as JSON, the mean of both copies: in that which is text, quotes are escaped once more."""
    text = msgspec.json.encode(value, enc_hook=plain)
    return (len(text) + len(msgspec.json.encode(text.decode()))) // 2


def tokens(*texts: str) -> int:
    """How many tokens texts are at most."""
    return -(-sum(len(text.encode()) for text in texts) // BYTES_PER_TOKEN)


def plain_json(value: Any) -> Any:
    """NumPy scalars, Polars series, NaN and all, as JSON has them."""
    return json.loads(msgspec.json.encode(value, enc_hook=plain))


def _order(result: Result, detail: Detail) -> tuple[np.ndarray, str]:
    """Numbers of the rows; in a concise answer to a long list, those that matter most come first."""
    column = result.ranked_by if detail == "concise" and result.top is None else None
    if not column or result.rows.height <= _CONCISE_ROWS:
        return np.arange(result.rows.height), _AS_PRINTED
    values = result.rows[column].cast(pl.Float64).fill_null(-np.inf).to_numpy()
    return np.argsort(-values, kind="stable"), f"{column}, largest first"


def _rows(
    asked: Asked, order: np.ndarray, detail: Detail, most: int | None, left_out: dict[str, str]
) -> list[dict[str, Any]]:
    few = _CONCISE_ROWS if asked.result.ranked_by is not None else _UNRANKED_ROWS
    wanted = most or (few if detail == "concise" else _BUDGET // 8)
    rows = asked.result.rows[order[:wanted]].to_dicts()
    shown = [
        {k: _cell(v, detail, left_out) for k, v in row.items() if detail == "full" or v is not None} for row in rows
    ]
    if asked.cited:
        profile = asked.arguments["profile"]
        for row, number in zip(shown, order[:wanted], strict=False):
            row["see"] = call_of(asked.cited[int(number)], profile)
    return shown


def _as_fit(rows: list[dict[str, Any]], room: int, left_out: dict[str, str]) -> list[dict[str, Any]]:
    """As many of the first rows as there is room for; of the first, at least the columns that there is room for."""
    kept: list[dict[str, Any]] = []
    for row in rows:
        room -= size(row) + 1
        if room >= 0:
            kept.append(row)
            continue
        if not kept:
            room += size(row)
            kept.append(_columns_that_fit(row, room))
            missing = len(row) - len(kept[0])
            left_out["columns"] = f"{missing} of {len(row)} for want of room: ask for fewer, or read the resource"
        break
    return kept


def _columns_that_fit(row: dict[str, Any], room: int) -> dict[str, Any]:
    kept = {}
    for name, value in row.items():
        room -= size({name: value})
        if room < 0:
            break
        kept[name] = value
    return kept


def _fitting(parts: list[Any], name: str, left_out: dict[str, str]) -> list[Any]:
    """The first parts, as many as may be; how many there are in all is said."""
    kept: list[Any] = []
    room = _PART
    for part in parts:
        room -= size(part) + 1
        if room < 0:
            left_out[name] = f"{len(parts) - len(kept)} of {len(parts)}: the resource has all"
            break
        kept.append(part)
    return kept


def _summary(result: Result, detail: Detail, left_out: dict[str, str]) -> dict[str, Any]:
    """What was summed up, the small parts first."""
    parts = {k: v for k, v in result.summary.items() if k != STATEMENT}
    if detail == "concise":
        parts = {k: _value(v, detail) for k, v in parts.items() if v is not None}
    kept, room = {}, _PART
    for name in sorted(parts, key=lambda name: size(parts[name])):
        room -= size(parts[name]) + len(name) + 4
        if room < 0:
            missing = [name for name in parts if name not in kept]
            left_out["summary"] = f"{', '.join(missing)}: the resource has all"
            break
        kept[name] = parts[name]
    return {name: kept[name] for name in parts if name in kept}


def _note(note: Any, detail: Detail) -> dict[str, Any]:
    if detail == "full":
        return dict(note.data())
    return {"code": note.code, "severity": note.severity, "text": _cut(str(note), 400)}


def _cell(value: Any, detail: Detail, left_out: dict[str, str]) -> Any:
    """A cell of a row: one that is too long for any answer is cut, and a long list is not for a concise one."""
    long = isinstance(value, list | dict) and (len(value) > _LONGEST_LIST or size(value) > _LONGEST_LIST)
    if long or (isinstance(value, str) and len(value) > _LONGEST_TEXT):
        left_out["cells"] = "some are cut: the resource has all of them"
    if long:
        return f"{len(value):,} values: the resource has them"
    if detail == "concise" and isinstance(value, list | dict) and size(value) > _CONCISE_LIST:
        return f"{len(value):,} values: detail=full has them"
    return _value(value, detail)


def _value(value: Any, detail: Detail) -> Any:
    if isinstance(value, str):
        return _cut(value)
    if detail == "full":
        return value
    if isinstance(value, float):
        return _rounded(value)
    if isinstance(value, dict):
        return {k: _value(v, detail) for k, v in value.items()}
    return [_value(v, detail) for v in value] if isinstance(value, list | tuple) else value


def _rounded(value: float) -> float | None:
    """Six digits that count: what a sentence needs, and half the tokens."""
    if not isfinite(value):
        return None
    return value if value == 0 else round(value, _DIGITS - 1 - floor(log10(abs(value))))


def _cut(text: str, most: int = _LONGEST_TEXT) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
