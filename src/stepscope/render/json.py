"""The JSON contract: one object, keys in a fixed order, bare numbers. NaN and infinities become null."""

from __future__ import annotations

from typing import Any

import msgspec

from stepscope.model.result import Result
from stepscope.render.inert import in_json

SCHEMA = "stepscope/1"


def to_json(result: Result) -> bytes:
    """The result as UTF-8. One line per key and per row: easy to read, to grep and to diff, and still one object."""
    body = {
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
        "rows": result.rows.to_dicts(),
        "rows_total": result.total,
        "summary": result.summary,
        "notes": list(map(str, result.notes)),
        "note_details": [n.data() for n in result.notes],
    }
    encode = msgspec.json.Encoder(enc_hook=plain).encode
    parts = []
    for key, value in body.items():
        if isinstance(value, list) and value:
            text = b"[\n  " + b",\n  ".join(map(encode, value)) + b"\n ]"
        else:
            text = encode(value)
        parts.append(encode(key) + b": " + text)
    return in_json((b"{" + b",\n ".join(parts) + b"}\n").decode()).encode()


def plain(value: Any) -> Any:
    """NumPy scalars and arrays, Polars series and frames, as JSON has them."""
    for method in ("to_dicts", "tolist", "to_list"):
        if hasattr(value, method):
            return getattr(value, method)()
    raise NotImplementedError(f"a result holds a {type(value).__name__}, which JSON has no form for")
