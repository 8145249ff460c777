"""Mutants of small files: TOML, pages of Nsight Compute as CSV, compiler logs, pickles, packets of Perfetto."""

from __future__ import annotations

import csv
import datetime
import json
import pickle
import random
import tomllib
from pathlib import Path
from typing import Any

from effects import Defect
from mutate_bytes import damage
from mutate_texts import nested_defect
from mutate_values import FIELDS, Fresh, Raw, shown, some

from stepscope.simulate.hang.pickled import pickled

_TOML_ONLY = (Raw("nan"), Raw("-inf"), Raw("2026-11-16"), Raw("07:32:00"), Raw("0xffff"), Raw("'''a\nb'''"))
_TOML_VALUES = Fresh(*(f for f in FIELDS if f is not None and not isinstance(f, Raw)), FIELDS[-1], *_TOML_ONLY)
_CELL_TEXTS = (
    "",
    "n/a",
    "nan",
    "-inf",
    "1e999",
    "-1",
    "1,234.5",
    "1.234,5",
    "9" * 400,
    "(1, 1, 1)",
    "%",
    "\x00",
    "inst",
)
#: Of a pickle: what JSON does not have, too.
_OBJECTS = Fresh(
    *(f for f in FIELDS if not isinstance(f, Raw)),
    b"\xff",
    (1, 2),
    {1: 2},
    2**70,
    -(2**70),
    float("nan"),
    {1, 2},
)


def mutate_toml(r: random.Random, path: Path) -> Defect:
    if r.random() < 0.25:
        return damage(r, path)
    content = tomllib.loads(path.read_text("utf-8"))
    said = [nested_defect(r, content, _TOML_VALUES) for _ in range(r.choice((1, 1, 2, 3)))]
    path.write_text(toml(content), "utf-8", errors="surrogatepass")
    return "; ".join(said), "free"


def toml(content: dict[str, Any]) -> str:
    """All on one level, values inline."""
    return "".join(f"{json.dumps(str(k), ensure_ascii=False)} = {_inline(v)}\n" for k, v in content.items())


def _inline(value: Any) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{json.dumps(str(k), ensure_ascii=False)} = {_inline(v)}" for k, v in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return "''" if value is None else json.dumps(value)


def mutate_page(r: random.Random, path: Path) -> Defect:
    """A page of Nsight Compute as CSV."""
    if r.random() < 0.2:
        return damage(r, path)
    with path.open(newline="", encoding="utf-8") as file:
        table = list(csv.reader(file))
    said = [_cell_defect(r, table) for _ in range(r.choice((1, 1, 3)))]
    with path.open("w", newline="", encoding="utf-8", errors="surrogatepass") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(table)
    return "; ".join(said), "free"


def _cell_defect(r: random.Random, table: list[list[str]]) -> str:
    if len(table) < 2:
        return "nothing left"
    how = r.random()
    rows = [1 + i for i in some(r, len(table) - 1)]
    width = len(table[0])
    at = r.randrange(width) if r.random() < 0.5 else r.randrange(min(width, 12))
    name = table[0][at] if at < width else "?"
    if how < 0.1:
        table += [table[i] for i in rows]
        return f"{len(rows)} rows twice"
    if how < 0.15:
        for i in reversed(rows):
            del table[i]
        return f"{len(rows)} rows gone"
    if how < 0.25:
        for row in table:
            del row[at : at + 1]
        return f"column {name} gone"
    if how < 0.3:
        for i in rows:
            del table[i][r.randrange(len(table[i]) or 1) :]
        return f"{len(rows)} rows short"
    value = r.choice(_CELL_TEXTS)
    for i in [0] if how < 0.35 else rows:
        if at < len(table[i]):
            table[i][at] = value
    return f"{name} = {value[:20]!r} in {'the header' if how < 0.35 else len(rows)}"


def mutate_text(r: random.Random, path: Path) -> Defect:
    """Lines of a log."""
    if r.random() < 0.5:
        return damage(r, path)
    lines = path.read_bytes().split(b"\n")
    places = some(r, len(lines))
    how = r.choice(("gone", "twice", "short", "long"))
    for at in reversed(places):
        line = lines[at]
        lines[at : at + 1] = {
            "gone": [],
            "twice": [line, line],
            "short": [line[: r.randrange(len(line) + 1)]],
            "long": [line * 50],
        }[how]
    path.write_bytes(b"\n".join(lines))
    return f"{len(places)} lines {how}", "free"


def mutate_pickle(r: random.Random, path: Path) -> Defect:
    """A snapshot of PyTorch's allocator."""
    if r.random() < 0.5:
        return damage(r, path)
    content = pickle.loads(path.read_bytes())  # our own good input
    said = [_snapshot_defect(r, content) for _ in range(r.choice((1, 1, 2, 3)))]
    path.write_bytes(pickle.dumps(content, protocol=r.randrange(2, 6)))
    return "; ".join(said), "free"


def mutate_dump(r: random.Random, path: Path) -> Defect:
    """A dump of the flight recorder, or what lies beside one: bytes, or values of the pickle or JSON."""
    data = path.read_bytes()
    if r.random() < 0.5 or data[:1] not in (b"\x80", b"{"):
        return damage(r, path)
    content = pickle.loads(data) if data[:1] == b"\x80" else json.loads(data)  # our own good input
    said = [_dump_defect(r, content) for _ in range(r.choice((1, 1, 2, 3)))]
    if data[:1] == b"\x80":
        as_torch = r.random() < 0.5 and _writable(content)
        path.write_bytes(pickled(content) if as_torch else pickle.dumps(content, protocol=r.randrange(2, 6)))
    else:
        path.write_text(json.dumps(content, default=str))
    return "; ".join(said), "free"


def _dump_defect(r: random.Random, content: Any) -> str:
    """Anywhere; or one field of some calls."""
    calls = content.get("entries") if isinstance(content, dict) else None
    if not isinstance(calls, list) or not calls or r.random() < 0.4:
        return nested_defect(r, content, _OBJECTS)
    targets = [calls[i] for i in some(r, len(calls)) if isinstance(calls[i], dict)]
    key = r.choice(sorted({k for t in targets for k in t}, key=str) or ["state"])
    value = r.choice(_OBJECTS)
    for target in targets:
        target[key] = value
    return f"{key} = {shown(value)} in {len(targets)}"


def _writable(value: Any) -> bool:
    """Whether torch's own pickler could write it."""
    if isinstance(value, str):
        return value.isascii()
    if isinstance(value, dict):
        return all(isinstance(key, str) and key.isascii() and _writable(item) for key, item in value.items())
    if isinstance(value, tuple):
        return len(value) == 2 and all(isinstance(item, str) for item in value)
    if isinstance(value, list):
        return all(map(_writable, value))
    whole = isinstance(value, int) and -(1 << 63) <= value < 1 << 63
    return value is None or whole or isinstance(value, float | bool)


def _snapshot_defect(r: random.Random, content: Any) -> str:
    """Anywhere; or one field of some entries of a list, which is where figures come from."""
    lists = [content[k] for k in ("segments", "device_traces") if isinstance(content, dict) and k in content]
    lists = [found for found in lists if isinstance(found, list) and found]
    if not lists or r.random() < 0.4:
        return nested_defect(r, content, _OBJECTS)
    chosen = r.choice(lists)
    entries = next((inner for inner in chosen if isinstance(inner, list) and inner), chosen)
    if entries is chosen and isinstance(entries[0], dict) and r.random() < 0.5:
        entries = r.choice([s["blocks"] for s in chosen if isinstance(s, dict) and s.get("blocks")] or [chosen])
    if not isinstance(entries, list):
        return nested_defect(r, content, _OBJECTS)
    targets = [entries[i] for i in some(r, len(entries)) if isinstance(entries[i], dict)]
    key = r.choice(sorted({k for t in targets for k in t}, key=str) or ["size"])
    value = r.choice(_OBJECTS)
    for target in targets:
        target[key] = value
    return f"{key} = {shown(value)} in {len(targets)}"


def mutate_packets(r: random.Random, path: Path) -> Defect:
    """A trace of Perfetto: bytes, or whole packets (each begins with tag 0x0a and its length)."""
    data = path.read_bytes()
    packets = _packets(data)
    if r.random() < 0.5 or len(packets) < 2:
        return damage(r, path)
    places, how = some(r, len(packets)), r.choice(("gone", "twice", "moved"))
    if how == "moved":
        r.shuffle(packets)
    else:
        packets = [
            p
            for at, p in enumerate(packets)
            for _ in range((how == "twice") + (at not in set(places) or how == "twice"))
        ]
    path.write_bytes(b"".join(packets))
    return f"{len(places)} packets {how}", "free"


def _packets(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data) and data[at] == 0x0A:
        end, size, shift = at + 1, 0, 0
        while end < len(data):
            byte = data[end]
            size |= (byte & 0x7F) << shift
            end, shift = end + 1, shift + 7
            if byte < 0x80:
                break
        found.append(data[at : end + size])
        at = end + size
    return found


def mutate_report(r: random.Random, path: Path) -> Defect:
    """A report of Nsight Compute: mostly its beginning and its end, where sizes and offsets are."""
    data = bytearray(path.read_bytes())
    near = r.choice((64, 4096, len(data)))
    for _ in range(r.choice((1, 4, 64))):
        data[r.choice((1, -1)) * r.randrange(near) % len(data)] = r.randrange(256)
    size = r.choice((len(data), len(data), r.randrange(len(data))))
    path.write_bytes(data[:size])
    return f"bytes of {near}, {size} of {len(data)} left", "free"
