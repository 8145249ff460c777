"""Arrays as all packages use them: what they are called, rows that may be none, and two integers in one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]  # rows that are kept of every op: half the memory, and no rank has two thousand million
I8 = npt.NDArray[np.int8]  # codes: of families, causes, passes
F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
T = TypeVar("T", bound=np.generic)

#: The row of what is not there: the parent of a top-level range, the launch of an op that none is recorded of.
NONE = -1
_HALF = 1 << 31
#: Ids lie close together where they are at most so many times as far apart as they are many.
_CLOSE = 8
#: What is looked up together stays in the CPU's cache.
_AT_ONCE = 1 << 16


def take(values: npt.NDArray[T], rows: I64, default: Any) -> npt.NDArray[T]:
    """`values[rows]`, and `default` (a value, or one for each row) where a row is NONE."""
    there = rows != NONE
    if len(values) == 0:  # then no row is there
        return np.where(there, 0, default).astype(values.dtype)
    return np.where(there, values[np.where(there, rows, 0)], default).astype(values.dtype, copy=False)


def look_up(table: npt.NDArray[T], ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[T]:
    """`table[ids]`, ids clipped to it; some at a time, since NumPy makes numbers of 64 bits of them first."""
    values = np.empty(len(ids), table.dtype)
    for first in range(0, len(ids), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        np.take(table, ids[some], mode="clip", out=values[some])
    return values


def one_of(codes: npt.NDArray[np.integer[Any]], wanted: Iterable[int]) -> Mask:
    """Which codes are among a few: compared with one after the other, as plain numbers.

    On codes of 8 bits `np.isin` takes 300 times as long as a comparison, one with a member of an enumeration 15 times.
    """
    found = np.zeros(len(codes), dtype=bool)
    for code in wanted:
        found |= codes == int(code)
    return found


def packed(high: npt.NDArray[np.integer[Any]] | int, low: npt.NDArray[np.integer[Any]] | int) -> I64:
    """Two integers of 32 bits as one of 64, which sorts as the pair does: to look pairs up, or to tell them apart."""
    key: I64 = (np.asarray(high, np.int64) << 32) + (np.asarray(low, np.int64) + _HALF)
    return key


def numbered(values: npt.NDArray[np.integer[Any]]) -> tuple[I64, I64]:
    """The distinct values in order, and which of them each is: for ids (of streams, threads, names) close together.

    Counting them takes a third of the time of `np.unique`, which sorts; what lies far apart is sorted after all.
    """
    least = int(values.min()) if len(values) else 0
    width = int(values.max()) - least + 1 if len(values) else 0
    if width > _CLOSE * len(values):
        distinct, of = np.unique(values, return_inverse=True)
        return distinct.astype(np.int64), of.reshape(-1).astype(np.int64)
    offset = values.astype(np.int64) - least
    there = np.zeros(width, dtype=bool)
    there[offset] = True
    return np.flatnonzero(there) + least, (np.cumsum(there) - 1)[offset]


def by_id(ids: npt.NDArray[np.integer[Any]]) -> I64:
    """Rows by their ids, those of one id in order. Of 16 bits, NumPy sorts in linear time."""
    if ids.dtype.itemsize == 2:
        return np.argsort(ids, kind="stable")
    distinct, of = numbered(ids)
    order: I64 = np.argsort(of.astype(np.uint16) if len(distinct) < 1 << 16 else of, kind="stable")
    return order


def places(bounds: I64, at: I64) -> I64:
    """How many of `bounds`, ascending, each moment has reached: `np.searchsorted` from the right.

    Moments in order, as records of a trace are, may be many more than bounds: looking for each bound among them takes a
    tenth of the time.
    """
    if len(at) <= len(bounds) or np.any(at[1:] < at[:-1]):
        return np.searchsorted(bounds, at, side="right")
    since = np.searchsorted(at, bounds, side="left")
    return np.repeat(np.arange(len(bounds) + 1), np.diff(since, prepend=0, append=len(at)))


def by_place(values: I64, bounds: I64, at: I64) -> I64:
    """Of each moment the value of its place among bounds: `values[places(bounds, at)]`, without the places."""
    if len(at) <= len(bounds) or np.any(at[1:] < at[:-1]):
        return values[np.searchsorted(bounds, at, side="right")]
    since = np.searchsorted(at, bounds, side="left")
    return np.repeat(values, np.diff(since, prepend=0, append=len(at)))


def in_order(group: npt.NDArray[np.integer[Any]], *keys: npt.NDArray[np.integer[Any]]) -> I64:
    """Rows by group, then by the keys, the first before the others; rows that are alike stay in order.

    As `np.lexsort`, which sorts as often as there are keys. What a profiler wrote is mostly in time order, or made of
    runs that are: a stable sort only merges those, and groups are few. Only rows that tie are then sorted by the rest.
    """
    order: I64 | None = None  # as they stand
    of, ahead = group, keys[0]
    if np.any(of[1:] < of[:-1]):
        order = by_id(group)
        of, ahead = of[order], ahead[order]
    if np.any((of[1:] == of[:-1]) & (ahead[1:] < ahead[:-1])):
        # Group by group as far as one number holds both: the runs of a group are merged with each other alone.
        lifted = _lifted(of, ahead)
        again = np.lexsort((ahead, of)) if lifted is None else np.argsort(lifted, kind="stable")
        order, ahead = again if order is None else order[again], ahead[again]
    if order is None:
        order = np.arange(len(of))
    if len(keys) > 1:
        same = (ahead[1:] == ahead[:-1]) & (of[1:] == of[:-1])  # rows that were sorted again stay in their group
        rows = np.flatnonzero(np.r_[same, False] | np.r_[False, same])
        tied = order[rows]
        order[rows] = tied[np.lexsort([*(key[tied] for key in keys[::-1]), group[tied]])]
    return order


def _lifted(group: npt.NDArray[np.integer[Any]], key: npt.NDArray[np.integer[Any]]) -> I64 | None:
    """One number per row that sorts as the pair does, of rows in order of their groups; None beyond 63 bits."""
    number = np.cumsum(np.r_[False, group[1:] != group[:-1]])
    least, most = int(key.min()), int(key.max())
    if (int(number[-1]) + 1) * (most - least + 1) >= 1 << 63:
        return None
    lifted: I64 = (key.astype(np.int64, copy=False) - least) + number * (most - least + 1)
    return lifted


def unpacked(key: I64) -> tuple[I64, I64]:
    """The two integers."""
    return key >> 32, (key & 0xFFFFFFFF) - _HALF
