"""What a field can come to hold: values of every type, and at every edge."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from typing import Any

#: Of an SQLite cell.
CELLS: tuple[Any, ...] = (
    *(None, "", "text", "12", "9" * 30, b"", b"\x00\xff\xfe", 0, 1, -1, 5, -(10**9), 2**31, 2**32 - 1, 2**53),
    *(2**62, 2**63 - 1, -(2**62), -(2**63), 0.5, -1.5, 1e300, -1e300, 12.0, float("inf")),
)


class Raw(str):
    """JSON text that stands as it is: no encoder writes it."""

    __slots__ = ()


class Fresh(Sequence[Any]):
    """Values, a new one each time: what is put into an input may itself be changed by the next defect."""

    def __init__(self, *values: Any) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, at: Any) -> Any:
        return copy.deepcopy(self._values[at])


#: Of a JSON field.
FIELDS = Fresh(
    *(None, "", "text", "12", "-7", "9" * 30, True, False, 0, 1, -1, -(10**9), 2**31, 2**53, 2**62, 2**63 - 1, 2**63),
    *(-(2**63), 10**400, 0.5, -1.5, 1e300, -1e300, [], [1], [[], [None]], {}, {"a": {"b": []}}, "\x00\x1b[31m\udcff"),
    *(Raw("NaN"), Raw("-Infinity"), Raw("1e999"), Raw("1e5000000"), Raw("0.1" + "1" * 400)),
    Raw("[" * 2000 + "]" * 2000),
)


def encode(value: Any) -> str:
    """As JSON, with `Raw` texts as they are."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(str(k))}:{encode(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(encode, value)) + "]"
    return json.dumps(value)


def shown(value: Any) -> str:
    """Short enough for a line."""
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else "a huge number"
    return text if len(text) < 40 else text[:30] + "…"


def some(r: random.Random, count: int) -> list[int]:
    """Places among `count`: one, some, or all."""
    if count == 0:
        return []
    how = r.random()
    if how < 0.45:
        return [r.randrange(count)]
    return list(range(count)) if how > 0.8 else sorted(r.sample(range(count), max(1, count // r.choice((3, 10, 30)))))
