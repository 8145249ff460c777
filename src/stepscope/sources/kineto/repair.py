"""Mending the flaws that profilers are known to write into JSON."""

from __future__ import annotations

import math
import re

_STRINGS_AND_FLAWS = re.compile(
    rb'"(?:[^"\\]|\\.)*"'
    rb"|-?(?:NaN|nan|Infinity|inf)\b"
    rb"|-?\d+(?:\.\d+)?[eE]\+?\d{3,}"
    rb"|,(?=\s*[\]}])",
    re.DOTALL,
)
_CONTROL = re.compile(rb"[\x00-\x1f]")
_BAD_ESCAPE = re.compile(rb'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|)', re.DOTALL)


def repaired(text: bytes) -> bytes:
    """The text with the flaws that profilers are known to write mended; unchanged where it has none of them.

    Those are: NaN and infinite numbers (a bandwidth over zero time), or larger ones than a float holds, raw control
    characters and lone backslashes in names, bytes that are not UTF-8, and a comma behind the last element.
    """
    try:
        text.decode()
    except UnicodeDecodeError:
        text = text.decode(errors="replace").encode()
    return _STRINGS_AND_FLAWS.sub(_mend, text)


def _mend(found: re.Match[bytes]) -> bytes:
    token = found[0]
    if token[:1] == b",":
        return b""
    if token[-1:].isdigit():
        return b"null" if math.isinf(float(token)) else token
    if token[:1] != b'"':
        return b"null"
    if b"\\" in token:
        token = _BAD_ESCAPE.sub(lambda m: m[0] if m[1] else b"\\\\", token)
    return _CONTROL.sub(lambda m: b"\\u%04x" % m[0][0], token)
