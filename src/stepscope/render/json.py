"""The JSON contract: one object, keys in a fixed order, bare numbers. NaN and infinities become null."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import polars as pl

from stepscope.model.result import Result
from stepscope.render.inert import in_json

SCHEMA = "stepscope/1"


#: Rows that are written together: as Python's objects they take ten times the room.
_AT_ONCE = 10_000


def to_json(result: Result) -> bytes:
    """The result as UTF-8. One line per key and per row: easy to read, to grep and to diff, and still one object."""
    return b"".join(blocks(result))


def blocks(result: Result) -> Iterator[bytes]:
    """The same in parts: a long answer is never there as a whole."""
    body: dict[str, Any] = {
        "schema": SCHEMA,
        "command": result.command,
        "profile": {
            "sources": [
                {"file": s.file, "format": s.format, "tool": s.tool, "schema": s.schema} for s in result.sources
            ],
            "ranks": result.ranks,
            "world": result.world,
        },
        "window": result.window,
        "rows": result.rows,
        "rows_total": result.total,
        "summary": result.summary,
        "notes": list(map(str, result.notes)),
        "note_details": [n.data() for n in result.notes],
    }
    encode = msgspec.json.Encoder(enc_hook=plain).encode
    text = b"{"
    for key, value in body.items():
        text += encode(key) + b": "
        many = value.height if isinstance(value, pl.DataFrame) else len(value) if isinstance(value, list) else 0
        if not many:
            text += encode(value)
        for first in range(0, many, _AT_ONCE):
            text += b",\n  " if first else b"[\n  "
            some = value[first : first + _AT_ONCE]
            text += b",\n  ".join(map(encode, some.to_dicts() if isinstance(some, pl.DataFrame) else some))
            if first + _AT_ONCE < many:
                yield _inert(text)
                text = b""
        text += (b"\n ]" if many else b"") + (b",\n " if key != "note_details" else b"}\n")
    yield _inert(text)


def _inert(text: bytes) -> bytes:
    return in_json(text.decode()).encode()


def plain(value: Any) -> Any:
    """NumPy scalars and arrays, Polars series and frames, as JSON has them."""
    for method in ("to_dicts", "tolist", "to_list"):
        if hasattr(value, method):
            return getattr(value, method)()
    raise NotImplementedError(f"a result holds a {type(value).__name__}, which has no form in JSON")
