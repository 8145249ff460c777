"""Columns out of the events of one kind in one chunk."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
import polars as pl

from stepscope.sources.kineto.events import Args, Event
from stepscope.sources.kineto.times import Ints

_NO_ARGS = Args()
_pid, _tid, _name = attrgetter("pid"), attrgetter("tid"), attrgetter("name")
#: Columns that say which process a row belongs to; dropped once that is known.
PID, RANK = "_pid", "_rank"


class Rows:
    """Events of one kind with their times: the columns of a table are taken from here."""

    def __init__(self, events: list[Event], start: Ints, end: Ints) -> None:
        self.events = events
        self.args = [e.args or _NO_ARGS for e in events]
        self.start, self.end = start, end

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

    def values(self, attribute: str) -> list[Any]:
        """One field of `args`, as it is."""
        return list(map(attrgetter(attribute), self.args))

    def arg(self, attribute: str) -> pl.Series:
        """An integer field of `args`."""
        return integers(self.values(attribute))

    def correlation(self) -> pl.Series:
        """Correlation ids are positive; Kineto writes 0 where the activity has none."""
        ids = self.arg("correlation")
        return ids.set(ids <= 0, None)

    def tid(self) -> pl.Series:
        """Thread ids in 32 bits: Kineto cuts a pthread handle to that many, signed or not."""
        ids = integers(list(map(_tid, self.events)))
        return ((ids.fill_null(-1) + 2**31) % 2**32 - 2**31).cast(pl.Int32)

    def triple(self, attribute: str) -> list[pl.Series]:
        """The x, y and z of a grid or a block."""
        values = self.values(attribute)
        if all(v is not None and len(v) == 3 for v in values):
            table = np.array(values, dtype=np.int64).reshape(-1, 3)
            return [pl.Series(table[:, axis]) for axis in range(3)]
        return [integers([v[axis] if v and len(v) > axis else None for v in values]) for axis in range(3)]


def integers(values: list[Any]) -> pl.Series:
    """Int64 with null for whatever is no integer, or too large a one."""
    try:
        return pl.Series(values, dtype=pl.Int64)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        return pl.Series([v if _is_int64(v) else _parsed(v) for v in values], dtype=pl.Int64)


def _is_int64(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _parsed(value: Any) -> int | None:
    """Some tools write process and thread ids as texts."""
    if isinstance(value, str) and value.lstrip("-").isdigit():
        number = int(value)
        return number if _is_int64(number) else None
    return None
