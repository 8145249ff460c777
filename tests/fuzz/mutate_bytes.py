"""Mutants of any file: bytes changed, moved, repeated, left out; damaged gzip."""

from __future__ import annotations

import gzip
import random
import zlib
from pathlib import Path

from effects import Defect

#: Texts that mean something to some reader.
_TOKENS = (
    b"\x00",
    b"\xff",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"\n",
    b"-",
    b"1e999",
    b"NaN",
    b"\xed\xa0\x80",
    b"\x7f",
)


def damaged(r: random.Random, data: bytes) -> tuple[bytes, str]:
    """One to a few changes of bytes; what was done."""
    out, said = bytearray(data), []
    for _ in range(r.choice((1, 1, 2, 8))):
        if not out:
            break
        at, how = r.randrange(len(out)), r.random()
        size = min(r.choice((1, 2, 8, 64, 512)), len(out) - at)
        if how < 0.35:
            out[at] = r.randrange(256)
            said.append("byte")
        elif how < 0.5:
            out[at] ^= 1 << r.randrange(8)
            said.append("bit")
        elif how < 0.6:
            del out[at:]
            said.append(f"cut at {at}")
        elif how < 0.7:
            del out[at : at + size]
            said.append(f"{size} gone")
        elif how < 0.8:
            source = r.randrange(len(out))
            out[at : at + size] = out[source : source + size]
            said.append(f"{size} copied")
        elif how < 0.9:
            out[at:at] = r.choice(_TOKENS)
            said.append("inserted")
        else:
            out[at : at + size] = bytes(r.choice((0, 255)) for _ in range(1)) * size
            said.append(f"{size} filled")
    return bytes(out), f"bytes: {', '.join(said)}"


def damage(r: random.Random, path: Path) -> Defect:
    data, said = damaged(r, path.read_bytes())
    path.write_bytes(data)
    return said, "free"


def damage_gzip(r: random.Random, path: Path, content: bytes) -> Defect:
    """`path` as gzip of `content`, damaged. What gzip itself notices must not change figures in silence."""
    how = r.random()
    if how < 0.1:
        half = r.randrange(len(content))
        path.write_bytes(gzip.compress(content[:half], 1) + gzip.compress(content[half:], 1))
        return "gzip of two members", "same"
    if how < 0.2:
        path.write_bytes(gzip.compress(content, 1) + b"\x00" * r.choice((1, 512, 4096)))
        return "gzip with zeros behind", "same"
    data, said = damaged(r, gzip.compress(content, 1))
    path.write_bytes(data)
    try:
        whole = gzip.decompress(data) == content
    except (OSError, EOFError, zlib.error):
        return f"gzip {said}", "told"
    return f"gzip {said}", "same" if whole else "free"
