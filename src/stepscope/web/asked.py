"""What a request asks, read strictly: numbers within bounds, lists that are short, texts that are not endless."""

from __future__ import annotations

from dataclasses import dataclass

#: No moment is later (a month), and no text or list longer.
_MOST_NS, _MOST_TEXT, _MOST_LIST = 30 * 86_400 * 10**9, 400, 4_096


class BadRequest(Exception):
    """The request is not one that the page makes."""


@dataclass(frozen=True)
class Asked:
    """The parameters of a request."""

    given: dict[str, str]

    def number(self, name: str, least: int = 0, most: int = _MOST_NS, default: int | None = None) -> int:
        text = self.given.get(name, "" if default is None else str(default))
        if not text.removeprefix("-").isdecimal() or len(text) > 20:
            raise BadRequest(f"{name}: a whole number is expected")
        if not least <= int(text) <= most:
            raise BadRequest(f"{name}: {least} to {most}")
        return int(text)

    def moments(self) -> tuple[int, int]:
        """`from` and `to`; a view may begin before the profile does."""
        lo, hi = (self.number(name, -_MOST_NS) for name in ("from", "to"))
        if lo >= hi:
            raise BadRequest("from must lie before to")
        return lo, hi

    def numbers(self, name: str, most: int, length: int = _MOST_LIST) -> list[int]:
        """`0,3-5`."""
        indices: list[int] = []
        for piece in filter(None, self.given.get(name, "").split(",")):
            first, dash, last = piece.partition("-")
            if not first.isdecimal() or (dash and not last.isdecimal()) or len(piece) > 20:
                raise BadRequest(f"{name}: numbers and ranges are expected: 0,3-5")
            lo, hi = int(first), int(last or first)
            if lo > hi or hi >= most or len(indices) + hi - lo >= length:
                raise BadRequest(f"{name}: too many, or not there")
            indices += range(lo, hi + 1)
        return indices

    def text(self, name: str, most: int = _MOST_TEXT) -> str:
        text = self.given.get(name, "")
        if len(text) > most:
            raise BadRequest(f"{name}: too long")
        return text
