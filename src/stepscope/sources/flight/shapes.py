"""Calls of one shape: a regular expression made of a first one, that reads those with the same keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

#: Values as a dump has them; a text is read by its place in the memo.
_NUMBER = rb"K.|M..|J....|\x8a\x08.{8}|N"
_TEXT = rb"h.|j...."
_KINDS = {
    "number": rb"(?:" + _NUMBER + rb")",
    "text": rb"(?:" + _TEXT + rb")",
    "truth": rb"[\x88\x89]",
    "float": rb"G.{8}",
    "pair": rb"(?:(?:" + _TEXT + rb"){2}\x86)",
    "list": rb"(?:\](?:\((?:" + _TEXT + rb"|[\](e]|" + _NUMBER + rb")+?)?)",
}
_SCALAR = re.compile(rb"(?:" + _NUMBER + rb"|" + _TEXT + rb"|[\x88\x89]|G.{8})", re.DOTALL)
#: Shapes of a call: with and without a duration, with and without frames.
MOST_SHAPES = 8


class Shape:
    """The calls that a regular expression reads: the names of what it captures."""

    def __init__(self, keys: tuple[str, ...], pattern: re.Pattern[bytes]) -> None:
        self.keys, self.pattern = keys, pattern
        self.found: list[re.Match[bytes]] = []
        self.places: list[int] = []


def shape_of(body: bytes, call: dict[str, Any], wanted: frozenset[str], said: Callable[[bytes], Any]) -> Shape | None:
    """The expression for calls like this one; None where its keys are not all in the memo yet."""
    parts, keys = [rb"\}\("], []
    at = 2
    for name in call:
        token = _SCALAR.match(body, at)
        if token is None or token[0][:1] not in b"hj" or said(token[0]) != name:
            return None
        at = token.end()
        end = _end(body, at)
        kind = _kind(body, at)
        if end < 0 or kind is None:
            return None
        parts.append(re.escape(token[0]))
        parts.append(b"(" + _KINDS[kind] + b")" if name in wanted else _KINDS[kind])
        keys += [name] if name in wanted else []
        at = end
    pattern = re.compile(b"".join(parts) + b"u", re.DOTALL)
    return Shape(tuple(keys), pattern)


def _kind(body: bytes, at: int) -> str | None:
    first = body[at : at + 1]
    if first in (b"K", b"M", b"J", b"\x8a", b"N"):
        return "number"
    if first in (b"\x88", b"\x89"):
        return "truth"
    if first == b"G":
        return "float"
    if first == b"]":
        return "list"
    if first in (b"h", b"j"):
        token = _SCALAR.match(body, at)
        after = body[token.end() : token.end() + 1] if token else b""
        second = _SCALAR.match(body, token.end()) if token else None
        pair = after in (b"h", b"j") and second is not None and body[second.end() : second.end() + 1] == b"\x86"
        return "pair" if pair else "text"
    return None


def _end(body: bytes, at: int) -> int:
    """Where the value that begins at `at` ends; -1 where it is not of a kind that is known."""
    kind = _kind(body, at)
    if kind is None:
        return -1
    if kind != "list":
        seen = re.compile(_KINDS[kind], re.DOTALL).match(body, at)
        return seen.end() if seen else -1
    depth, here = 0, at
    while here < len(body):
        code = body[here : here + 1]
        if code == b"]" and (here == at or depth):
            here += 1
            if body[here : here + 1] == b"(":
                depth, here = depth + 1, here + 1
            elif depth == 0:
                return here
        elif code == b"e" and depth:
            depth, here = depth - 1, here + 1
            if depth == 0:
                return here
        else:
            token = _SCALAR.match(body, here)
            if token is None or not depth:
                return -1
            here = token.end()
    return -1
