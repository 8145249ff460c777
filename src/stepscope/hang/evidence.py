"""What a rank did differently, weighed: whether ranks that do the same work, or enough rounds of its own, say what was
due."""

from __future__ import annotations

from collections import Counter

import numpy as np

from stepscope.model.flight import I64, Flight, own_frames


def of_its_stage(flight: Flight, rows: I64, here: int, dues: I64) -> bool:
    """Where the call that was made or was due is a transfer: whether a rank of the same stage ever made what was due.
    What a rank sends and receives depends on where it stands in the pipeline, whatever it does in between."""
    calls = flight.calls
    transfers = [row for row in (int(rows[here]), int(rows[dues[0]])) if calls.p2p[row]]
    if not transfers:
        return True
    purpose = flight.groups[int(calls.group[transfers[0]])].purpose
    stages = {r: g.members.index(r) for g in flight.groups if g.purpose == purpose for r in g.members}
    own = stages.get(int(calls.rank[rows[here]]))
    return any(stages.get(rank) == own for rank in np.unique(calls.rank[rows[dues]]).tolist())


def only_once_round(flight: Flight, rank: I64, here: int, dues: I64) -> bool:
    """Whether the rank alone shows what was due, and its ring has lost its first calls: the last pass of a loop goes on
    otherwise than those before it, and nothing says that the ring holds more than passes of one loop."""
    own = int(rank[here])
    return own in flight.overflowed and bool((rank[dues] == own).all())


def like(flight: Flight, rows: I64, token: I64, here: int) -> int | None:
    """A call of another rank in the same group, of the same kind and by the same line; its callers may be other
    lines."""
    calls, did = flight.calls, int(rows[here])
    group, line = flight.groups[int(calls.group[did])], own_frames(flight.stacks[int(calls.stack[did])])[:1]
    stacks = [n for n, frames in enumerate(flight.stacks) if own_frames(frames)[:1] == line]
    same = np.isin(calls.stack[rows], stacks) & (calls.signature[rows] == calls.signature[did]) & (token != token[here])
    for n in np.flatnonzero(same).tolist():
        other = flight.groups[int(calls.group[rows[n]])]
        if (other.purpose, len(other.members)) == (group.purpose, len(group.members)):
            return int(n)
    return None


def left_out(flight: Flight, rows: I64, token: I64, here: int, due: int) -> bool:
    """Of a call that was made before its turn: whether the others of the group of the collective that was due made that
    collective where the rank makes another one, or none."""
    calls, did = flight.calls, int(rows[here])
    rank, missed = int(calls.rank[did]), flight.groups[int(calls.group[rows[due]])]
    if calls.p2p[rows[due]]:
        return False
    for number, group in enumerate(flight.groups):
        if (group.purpose, len(group.members)) != (missed.purpose, len(missed.members)) or rank not in group.members:
            continue
        of_group = np.flatnonzero((calls.group[rows] == number) & ~calls.p2p[rows])
        own = of_group[calls.rank[rows[of_group]] == rank]
        later, earlier = own[own > here], own[own < here]
        if not len(own):
            continue
        seq = calls.seq[rows[later[0]]] if len(later) else calls.seq[rows[earlier[-1]]] + 1
        others = of_group[(calls.seq[rows[of_group]] == seq) & (calls.rank[rows[of_group]] != rank)]
        if (token[others] == token[due]).any() and not (token[later[:1]] == token[due]).any():
            return True
    return False


def out_of_step(flight: Flight, token: I64, group: int, seq: int) -> tuple[list[int], bool] | None:
    """Of a call that its members make differently: those that make another one than ranks of like groups at the same
    number, or than most of their own, where some make what these make; and whether they go on like these a call earlier
    or later."""
    calls, own = flight.calls, flight.groups[group]
    alike = [(g.purpose, len(g.members)) == (own.purpose, len(own.members)) for g in flight.groups]
    like_rows = np.flatnonzero(np.array(alike, np.bool_)[calls.group] & ~calls.p2p & (token >= 0))
    near = like_rows[np.abs(calls.seq[like_rows] - seq) <= 1]
    due = {int(t) for t in token[near[(calls.seq[near] == seq) & (calls.group[near] != group)]]}
    here = near[calls.group[near] == group]
    made = {int(calls.rank[n]): int(token[n]) for n in here[calls.seq[here] == seq]}
    if not due and made:
        most, times = Counter(made.values()).most_common(1)[0]
        due = {most} if 2 * times > len(made) else set()
    odd = sorted(rank for rank, one in made.items() if one not in due)
    if not odd or len(odd) == len(made):
        return None
    beside = {int(t) for t in token[near[calls.seq[near] != seq]]}
    return odd, all(made[rank] in beside for rank in odd)
