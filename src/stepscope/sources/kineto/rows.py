"""Columns out of the events of one kind in one chunk."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, compress
from operator import attrgetter
from typing import Any

import numpy as np
import polars as pl

from stepscope.intervals.arrays import I64
from stepscope.sources.kineto.events import NO_RAW, Args, Event

_NO_ARGS = Args()
_pid, _tid, _name = attrgetter("pid"), attrgetter("tid"), attrgetter("name")
#: Columns that say which process a row belongs to; dropped once that is known.
PID, RANK = "_pid", "_rank"
_NOT_INTEGERS = (TypeError, OverflowError, pl.exceptions.PolarsError)


class Rows:
    """Events of one kind with their times: the columns of a table are taken from here."""

    def __init__(self, events: list[Event], start: I64, end: I64) -> None:
        self.events = events
        self.args = [e.args or _NO_ARGS for e in events]
        self.start, self.end = start, end
        self._taken: dict[str, tuple[Any, ...]] = {}

    def __len__(self) -> int:
        return len(self.events)

    def base(self) -> dict[str, Any]:
        """Times, and what tells the process."""
        return {
            "start_ns": self.start,
            "end_ns": self.end,
            PID: integers(list(map(_pid, self.events))),
            RANK: self.arg("rank"),
        }

    def names(self) -> list[str]:
        return list(map(_name, self.events))

    def take(self, *attributes: str) -> None:
        """Look up several fields of `args` at once: half the time of one after the other."""
        self._taken.update(zip(attributes, zip(*map(attrgetter(*attributes), self.args), strict=True), strict=True))

    def values(self, attribute: str) -> Sequence[Any]:
        """One field of `args`, as it is."""
        return self._taken.get(attribute) or list(map(attrgetter(attribute), self.args))

    def arg(self, attribute: str) -> pl.Series:
        """An integer field of `args`."""
        return integers(self.values(attribute))

    def small(self, attribute: str) -> pl.Series:
        """An integer field of `args` that fits 32 bits; null where it does not."""
        values = self.values(attribute)
        try:
            return pl.Series(values, dtype=pl.Int32)
        except _NOT_INTEGERS:
            return integers(values).cast(pl.Int32, strict=False)

    def tid(self) -> pl.Series:
        """Thread ids in 32 bits: Kineto cuts a pthread handle to that many, signed or not."""
        values = list(map(_tid, self.events))
        try:
            return pl.Series(values, dtype=pl.Int32)
        except _NOT_INTEGERS:
            ids = integers(values).fill_null(-1)
            return ((ids + 2**31) % 2**32 - 2**31).cast(pl.Int32)

    def text(self, attribute: str) -> pl.Series:
        """A text field of `args`."""
        return pl.Series(
            [v if v is None or isinstance(v, str) else str(v) for v in self.values(attribute)], dtype=pl.String
        )

    def raw(self, attribute: str) -> list[str | None]:
        """A field of `args` as its JSON text."""
        texts = _Texts()  # few are distinct, and most events have none
        return [None if v is NO_RAW else texts[bytes(v)] for v in self.values(attribute)]

    def where(self, chosen: list[bool]) -> Rows | None:
        """The rows that are marked; None where none is."""
        if not any(chosen):
            return None
        return Rows(list(compress(self.events, chosen)), self.start[chosen], self.end[chosen])

    def triple(self, attribute: str) -> list[pl.Series]:
        """The x, y and z of a grid or a block."""
        values = self.values(attribute)
        try:
            flat = np.fromiter(chain.from_iterable(values), np.int32)
        except (TypeError, OverflowError):  # None among them, as in copies of ROCm
            flat = np.empty(0, np.int32)
        if len(flat) == 3 * len(values) and set(map(len, values)) == {3}:
            return [pl.Series(axis) for axis in flat.reshape(-1, 3).T]
        return [
            integers([v[axis] if v and len(v) > axis else None for v in values]).cast(pl.Int32, strict=False)
            for axis in range(3)
        ]


class _Texts(dict[bytes, str | None]):
    """Texts by their bytes, decoded once."""

    def __missing__(self, raw: bytes) -> str | None:
        self[raw] = text = str(raw, "utf-8", "replace") or None
        return text


def integers(values: Sequence[Any]) -> pl.Series:
    """Int64 with null unless a 64-bit integer."""
    try:
        return pl.Series(values, dtype=pl.Int64)
    except _NOT_INTEGERS:
        return pl.Series([v if _is_int64(v) else _parsed(v) for v in values], dtype=pl.Int64)


def _is_int64(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _parsed(value: Any) -> int | None:
    """Some tools write process and thread ids as texts."""
    if isinstance(value, str) and value.lstrip("-").isdigit():
        number = int(value)
        return number if _is_int64(number) else None
    return None
