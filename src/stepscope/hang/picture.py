"""The picture of a hang: ranks down, sequence numbers across, and how far each call came."""

from __future__ import annotations

import msgspec
import numpy as np

from stepscope.hang.verdict import Verdict
from stepscope.hang.waits import is_transfer
from stepscope.model.flight import COMPLETED, NONE, STATES, Flight

#: What a page has room for.
_MOST_RANKS, _MOST_CALLS = 64, 32
ABSENT, NO_DUMP = "not called", "no dump"


class Picture(msgspec.Struct):
    """`cells[i][j]` is how far rank `ranks[i]` came in call `numbers[j]` of its group for `purpose`."""

    purpose: str
    ranks: list[int]
    numbers: list[int]
    cells: list[list[str]]
    #: the number that everybody waits for
    front: int
    culprits: list[int]
    #: ranks of the job that there was no room for
    left_out: int


def picture(flight: Flight, found: Verdict) -> Picture | None:
    """Of the purpose of the group in which the waiting ends; of transfers, and where nothing hangs, of the largest
    group."""
    if not len(flight.calls):
        return None
    meeting = found.meeting if found.meeting is not None and not is_transfer(found.meeting) else None
    calls = flight.calls
    collective = ~calls.p2p
    if not collective.any():
        return None
    group = meeting[0] if meeting else int(np.bincount(calls.group[collective]).argmax())
    purpose = flight.groups[group].purpose
    groups = np.array([g.purpose == purpose for g in flight.groups], np.bool_)
    rows = np.flatnonzero(groups[calls.group] & collective)
    open_ = rows[calls.state[rows] != COMPLETED]
    last = int(calls.seq[rows].max())
    front = meeting[1] if meeting else int(calls.seq[open_].min()) if len(open_) else last
    first = max(int(calls.seq[rows].min()), front - _MOST_CALLS * 3 // 4)
    numbers = list(range(first, min(last, first + _MOST_CALLS - 1) + 1))
    members = sorted({rank for n, g in enumerate(flight.groups) if groups[n] for rank in g.members})
    shown = _chosen(members, found.ranks, flight.groups[group].members)
    cells = _cells(flight, rows, shown, numbers)
    return Picture(purpose, shown, numbers, cells, front, found.ranks, len(members) - len(shown))


def _chosen(members: list[int], culprits: list[int], group: tuple[int, ...]) -> list[int]:
    """Culprits, their group, then the others in order."""
    if len(members) <= _MOST_RANKS:
        return members
    order = [*culprits, *(r for r in group if r not in culprits), *members]
    return sorted(list(dict.fromkeys(r for r in order if r in set(members)))[:_MOST_RANKS])


def _cells(
    flight: Flight, rows: np.ndarray[tuple[int], np.dtype[np.int64]], ranks: list[int], numbers: list[int]
) -> list[list[str]]:
    calls, there = flight.calls, set(flight.ranks)
    cells = [[ABSENT if rank in there else NO_DUMP] * len(numbers) for rank in ranks]
    at = {rank: n for n, rank in enumerate(ranks)}
    low = numbers[0] if numbers else 0
    floor = dict.fromkeys(ranks, NONE)
    for row in rows.tolist():
        rank, column = int(calls.rank[row]), int(calls.seq[row]) - low
        if rank in at:
            if floor[rank] == NONE:
                floor[rank] = column
            if 0 <= column < len(numbers):
                cells[at[rank]][column] = STATES[int(calls.state[row])]
    for rank, column in floor.items():  # what the ring has lost was completed
        for n in range(min(max(column, 0), len(numbers))):
            cells[at[rank]][n] = STATES[COMPLETED]
    return cells
