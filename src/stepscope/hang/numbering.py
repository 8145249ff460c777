"""Numbers for what is equal among millions of calls, without sorting them where tables do."""

from __future__ import annotations

import msgspec
import numpy as np

from stepscope.model.flight import COALESCED, I64, LOST, Flight, Signature

#: Cells of a table; where it would have more, numbers are found by sorting.
_TABLE = 1 << 24
#: Calls in which every member has sizes of its own.
_UNEVEN = ("all_to_all", "alltoall", "gather", "scatter")


def distinct(number: I64, rank: I64) -> I64:
    """By number, how many ranks have it. Rows are by rank: some ranks at a time, marked in a table."""
    width = int(number.max()) + 1
    at_once = max(1, _TABLE // width)
    distinct = np.zeros(width, np.int64)
    first = int(rank[0])
    while first <= int(rank[-1]):
        begin, end = np.searchsorted(rank, (first, first + at_once))
        seen = np.zeros((at_once, width), np.bool_)
        seen[rank[begin:end] - first, number[begin:end]] = True
        distinct += seen.sum(0)
        first = int(rank[end]) if end < len(rank) else first + at_once
    return distinct


def numbered(first: I64, second: I64) -> I64:
    """Numbers for pairs, equal for equal pairs, in the order of the pairs. Few pairs are marked in a table: that takes
    a tenth of the time that sorting takes."""
    width = int(second.max()) + 1
    key = first * width + second
    low, high = int(key.min()), int(key.max())
    if high - low >= _TABLE:
        number: I64 = np.unique(key, return_inverse=True)[1].reshape(-1)
        return number.astype(np.int64)
    seen = np.zeros(high - low + 1, np.bool_)
    key -= low
    seen[key] = True
    numbers = np.cumsum(seen, dtype=np.int64) - 1
    return np.asarray(numbers[key], np.int64)


def tokens(flight: Flight) -> I64:
    """Calls as numbers that are equal for equal calls of ranks that do the same: the group counts by its purpose."""
    calls = flight.calls
    purposes: dict[tuple[str, int], int] = {}
    of_group = np.array(
        [purposes.setdefault((g.purpose, len(g.members)), len(purposes)) for g in flight.groups] or [0], np.int64
    )
    bare: dict[Signature, int] = {}
    of_signature = np.array([bare.setdefault(_usual_of(s), len(bare)) for s in flight.signatures] or [0], np.int64)
    token = numbered(numbered(of_group[calls.group], of_signature[calls.signature]), calls.stack)
    closing = np.array([s.kind in (COALESCED, LOST) for s in flight.signatures] or [False], np.bool_)
    token[closing[calls.signature]] = -1  # nor of a call of which nothing is known
    return token


def _usual_of(signature: Signature) -> Signature:
    """A call without what may be another each time: how much a rank sends to others."""
    if signature.kind.startswith(_UNEVEN):
        return msgspec.structs.replace(signature, elements_in=0, elements_out=0)
    return signature
