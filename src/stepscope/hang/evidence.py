"""What a rank did differently, weighed: whether ranks that do the same work, or enough rounds of its own, say what was
due."""

from __future__ import annotations

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
