"""Hand-made traces for the tests of the Kineto source."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from stepscope.sources.kineto.source import KinetoSource

Event = dict[str, Any]


def event(cat: str, name: str, ts: float, dur: float = 1.0, pid: Any = 7, tid: Any = 7, **args: Any) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name: str, ts: float, dur: float = 1.0, **args: Any) -> Event:
    return event("kernel", name, ts, dur, 0, 7, **{"device": 0, "stream": 7, **args})


def write(folder: Path, events: list[Event], name: str = "trace.json", **metadata: Any) -> Path:
    """A trace file; compressed where the name says so."""
    path = folder / name
    text = json.dumps({"schemaVersion": 1, **metadata, "traceEvents": events, "traceName": "x.json"}).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path


def source(folder: Path, events: list[Event], **metadata: Any) -> KinetoSource:
    return KinetoSource(write(folder, events, **metadata))


def rows(source: KinetoSource, table: str, detail: bool = False) -> list[dict[str, Any]]:
    """Rows of a table, ids replaced by their texts."""
    chunk = source.read(table, "detail" if detail else "core")
    texts = chunk.names.to_list()
    ids = {"name", "domain", "raw_name", "shapes", "op", "communicator", "members", "group_name", "dtype"}
    found = chunk.frame.to_dicts()
    return [{k: texts[v] if k in ids and v is not None else v for k, v in row.items()} for row in found]
