"""What is known of the work of one torch op, and what its arguments were."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

#: What the work is.
PRODUCT, GROUPED, ATTENTION, CONVOLUTION = "product", "grouped product", "attention", "convolution"

Shape = list[int]


class Unclear(Exception):
    """The record does not say how much work an op is: the text says why."""


@dataclass(frozen=True)
class Count:
    """The FLOPs of an op: a multiplication and an addition are two.

    `asked` is what the model asks for, `causal` the same without what a causal mask hides. `again` is what the op
    computes a second time by itself: attention's backward makes the scores anew. `pass_` says whether only a forward,
    or only a backward pass has such an op.
    """

    kind: str
    asked: int
    causal: int
    again: int = 0
    again_causal: int = 0
    pass_: str | None = None


@dataclass(frozen=True)
class Arguments:
    """The arguments of an op as a profiler wrote them: shapes, types, and values of those that are not tensors."""

    shapes: list[Any]
    types: list[Any]
    values: list[Any]

    @classmethod
    def parsed(cls, shapes: str | None, types: str | None, values: str | None) -> Arguments:
        return cls(*(_list(text) for text in (shapes, types, values)))

    def shape(self, index: int, *sizes: int) -> Shape:
        """The shape of a tensor, with one of so many dimensions."""
        shape = self.shapes[index] if index < len(self.shapes) else None
        if not isinstance(shape, list) or not shape or not all(isinstance(n, int) and n >= 0 for n in shape):
            raise Unclear("a shape is missing")
        if sizes and len(shape) not in sizes:
            raise Unclear(f"{len(shape)} dimensions where {' or '.join(map(str, sizes))} were expected")
        return shape

    def given(self, index: int) -> bool:
        """Whether there is a tensor: an optional one that was not given has no shape."""
        shape = self.shapes[index] if index < len(self.shapes) else None
        return isinstance(shape, list) and bool(shape) and math.prod(_flat(shape)) > 0

    def value(self, index: int) -> str | None:
        """A value as it was written; None where it was not."""
        written = self.values[index] if index < len(self.values) else None
        return written if isinstance(written, str) and written else None

    def flag(self, index: int) -> bool | None:
        return {"True": True, "False": False}.get(self.value(index) or "")

    def numbers(self, index: int) -> list[int] | None:
        """A list of integers, `[1, 2]`."""
        try:
            parsed = json.loads(self.value(index) or "null")
        except ValueError:
            return None
        return parsed if isinstance(parsed, list) and all(isinstance(n, int) for n in parsed) else None

    def type(self, index: int) -> str:
        type_name = self.types[index] if index < len(self.types) else None
        return type_name if isinstance(type_name, str) else ""


def _list(text: str | None) -> list[Any]:
    try:
        parsed = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return []
    return parsed if isinstance(parsed, list) else []


def _flat(shape: list[Any]) -> list[int]:
    return [n if isinstance(n, int) else 1 for n in shape]
