"""What the reader of pickles makes: dicts and lists that know their place in the memo, and what takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Fields(dict[Any, Any]):
    """A dict of the pickle; `at` is its place in the memo, -1 where it has none."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = -1


class Items(list[Any]):
    """A list of the pickle, likewise."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = -1


class Sink(Protocol):
    """Takes what it knows: returns what stands for it from then on, or None where it is to be kept as it is."""

    @property
    def skip(self) -> Callable[[bytes, int], int] | None:
        """Called after a dict that was taken: reads on from a place in the buffer, and returns how far it came."""
        ...

    def fields(self, found: Fields) -> object | None:
        """A dict, complete."""
        ...

    def items(self, into: object, batch: list[Any]) -> object | None:
        """A batch of items that are appended to `into`: Items, or what stands for it."""
        ...

    def seen(self, items: list[Any]) -> object | None:
        """A whole list of things that were all seen before."""
        ...


class TooMuch(Exception):
    """A sink's refusal: what there is too much of."""


class Gone:
    """Stands in the memo for what the sink took: it cannot be referred to again."""


GONE = Gone()
#: Stands in the memo for an empty list.
EMPTY = Items()
