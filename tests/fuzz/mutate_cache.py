"""Mutants of cache files: damaged by accident, and forged so that the checksum is right."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import xxhash
from effects import Defect
from mutate_bytes import damaged
from mutate_texts import nested_defect
from mutate_values import encode

from stepscope.store import container

_TAIL = container._TAIL


def mutate_cache(r: random.Random, folder: Path) -> Defect:
    """One file of the cache at `folder` damaged or forged; what was done. A checksum notices accidents."""
    file = r.choice(sorted((folder / "tables").glob("*.tbl")))
    data = file.read_bytes()
    part = file.name.split(".", 1)[1]
    how = r.random()
    if how < 0.5:
        changed, said = damaged(r, data)
        file.write_bytes(changed)
        return f"{part}: {said}", "same"
    end = len(data) - _TAIL.size
    length = _TAIL.unpack_from(data, end)[0]
    body, meta = bytes(data[: end - length]), json.loads(data[end - length : end])
    if how < 0.8 or not body:
        said = nested_defect(r, meta)
    else:
        body, said = _other_bytes(r, body)
    file.write_bytes(forged(body, meta))
    return f"{part}: forged, {said}", "free"


def forged(body: bytes, meta: Any) -> bytes:
    text = encode(meta).encode("utf-8", errors="surrogatepass")
    whole = body + text
    return whole + _TAIL.pack(len(text), xxhash.xxh3_128(whole).digest(), container._MAGIC)


def _other_bytes(r: random.Random, body: bytes) -> tuple[bytes, str]:
    data = bytearray(body)
    for _ in range(r.choice((1, 16, 256))):
        data[r.randrange(len(data))] = r.randrange(256)
    return bytes(data), "other values"
