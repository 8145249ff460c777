"""Who waits for whom: the wavefront of a job that stands still.

A meeting is a collective of a group (its sequence number says which), or a transfer between two ranks. A rank is in
the meetings that its GPU runs; without timing nothing says which those are, and the first call that is not complete
stands for them. A meeting is held up by the members that have not come: they did not make the call, or their GPU has
not begun it.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec
import numpy as np

from stepscope.model.flight import COALESCED, COMPLETED, LOST, NONE, STARTED, Calls, Flight

#: Meetings are (group, sequence number), or (group, source, target, which of those under way) of a transfer.
Meeting = tuple[int, ...]
_TRANSFER = 4


class Waits(msgspec.Struct):
    """The wavefront."""

    #: by rank, its calls that are not complete, in order
    pending: dict[int, list[int]]
    #: by rank, the calls that it is in
    running: dict[int, list[int]]
    #: by call that is not complete, what it is a part of
    meeting: dict[int, Meeting]
    #: by meeting, the calls of those that are in it or have enqueued it, by rank
    came: dict[Meeting, dict[int, int]]
    #: by meeting that a rank is in, the ranks that hold it up
    absent: dict[Meeting, list[int]]

    def in_(self, rank: int) -> list[Meeting]:
        """The meetings that a rank is in."""
        return [self.meeting[call] for call in self.running.get(rank, [])]

    def held_by(self, rank: int) -> list[int]:
        """The ranks that a rank waits for."""
        return sorted({other for meeting in self.in_(rank) for other in self.absent[meeting] if other != rank})


def waits(flight: Flight) -> Waits:
    """Everybody's waits."""
    calls = flight.calls
    closing = np.array([s.kind == COALESCED for s in flight.signatures] or [False], np.bool_)
    batch = closing[calls.signature] & calls.p2p
    rows = np.flatnonzero((calls.state != COMPLETED) & ~batch)
    pending: dict[int, list[int]] = {rank: [] for rank in flight.ranks}
    for row, rank in zip(rows.tolist(), calls.rank[rows].tolist(), strict=True):
        pending[rank].append(row)
    meeting = _meetings(flight, pending)
    came: dict[Meeting, dict[int, int]] = defaultdict(dict)
    for row, key in meeting.items():
        came[key].setdefault(int(calls.rank[row]), row)
    running = _running(flight, pending)
    waits = Waits(pending, running, meeting, dict(came), {})
    there = set(flight.ranks)
    held = sorted({meeting[row] for rows in running.values() for row in rows})
    done = _last_done(flight, {key[0] for key in held})
    for key in held:
        waits.absent[key] = _absent(flight, waits, key, there, done)
    return waits


def members_of(flight: Flight, meeting: Meeting) -> tuple[int, ...]:
    """Who takes part in a meeting."""
    members = flight.groups[meeting[0]].members
    if len(meeting) != _TRANSFER:
        return members
    return tuple(members[place] for place in meeting[1:3] if place < len(members))


def is_transfer(meeting: Meeting) -> bool:
    return len(meeting) == _TRANSFER


def _meetings(flight: Flight, pending: dict[int, list[int]]) -> dict[int, Meeting]:
    calls = flight.calls
    meetings: dict[int, Meeting] = {}
    for rows in pending.values():
        counts: dict[tuple[int, int, int], int] = defaultdict(int)
        for row in rows:
            group = int(calls.group[row])
            signature = flight.signatures[int(calls.signature[row])]
            if signature.source == NONE:
                meetings[row] = (group, int(calls.seq[row]))
            else:
                pair = (group, signature.source, signature.target)
                meetings[row] = (*pair, counts[pair])
                counts[pair] += 1
    return meetings


def _running(flight: Flight, pending: dict[int, list[int]]) -> dict[int, list[int]]:
    calls = flight.calls
    begun = calls.state == STARTED
    if not flight.timed:
        # Which of the calls that the ring no longer holds was the first, nothing says.
        lost = np.array([s.kind == LOST for s in flight.signatures] or [False], np.bool_)[calls.signature]
        begun = (calls.hosted & begun) | (lost & ~calls.hosted)
        for rows in pending.values():
            own = [row for row in rows if not calls.hosted[row]]
            if own and not begun[own].any():
                begun[_batch(calls, own)] = True
    return {rank: [row for row in rows if begun[row]] for rank, rows in pending.items()}


def _batch(calls: Calls, rows: list[int]) -> list[int]:
    """The first of the calls, and what was begun with it: transfers of one batch share a number."""
    first = rows[0]
    if not calls.p2p[first] or calls.seq[first] == NONE:
        return [first]
    return [
        n for n in rows if calls.p2p[n] and (calls.group[n], calls.seq[n]) == (calls.group[first], calls.seq[first])
    ]


def _last_done(flight: Flight, groups: set[int]) -> dict[tuple[int, int], int]:
    """By rank and group, the largest sequence number of a collective that is complete, by the ring or by the status."""
    done = {(dump.rank, g): status[2] for dump in flight.dumps for g, status in dump.status.items() if g in groups}
    for key, last in _last_held(flight.calls, groups).items():
        done[key] = max(last, done.get(key, NONE))
    return done


def _last_held(calls: Calls, groups: set[int]) -> dict[tuple[int, int], int]:
    wanted = np.zeros(int(calls.group.max(initial=0)) + 1, np.bool_)
    wanted[sorted(groups)] = True
    rows = np.flatnonzero((calls.state == COMPLETED) & ~calls.p2p & wanted[calls.group])
    if not len(rows):
        return {}
    order = np.lexsort((calls.seq[rows], calls.group[rows], calls.rank[rows]))
    rows = rows[order]
    rank, group = calls.rank[rows], calls.group[rows]
    last = np.flatnonzero(np.append((rank[1:] != rank[:-1]) | (group[1:] != group[:-1]), True))
    keys = zip(rank[last].tolist(), group[last].tolist(), strict=True)
    return dict(zip(keys, calls.seq[rows][last].tolist(), strict=True))


def _absent(
    flight: Flight, waits: Waits, meeting: Meeting, there: set[int], done: dict[tuple[int, int], int]
) -> list[int]:
    came = waits.came[meeting]
    absent = []
    for rank in members_of(flight, meeting):
        row = came.get(rank)
        if row is None:
            if rank in there and not is_transfer(meeting) and done.get((rank, meeting[0]), NONE) >= meeting[1]:
                continue  # it was in it, and is done
            absent.append(rank)
        elif row not in waits.running[rank]:
            absent.append(rank)
    return absent
