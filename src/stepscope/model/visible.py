"""Texts of others on a terminal: what would be an order to it is written out instead."""

from __future__ import annotations

import re

#: Control characters but tab and line feed, and marks that change the direction of a text.
ORDERS = "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
_ORDER = re.compile(ORDERS)


def visible(text: str) -> str:
    """`\\x1b` in place of an escape."""
    return _ORDER.sub(lambda found: _written(found[0]), text)


def _written(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}"
