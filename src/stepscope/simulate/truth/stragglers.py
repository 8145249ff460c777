"""Who made whom wait, followed to its root.

Each meeting blames its last rank for the time after the last but one. That rank may itself have been held up: take the
communication that its arrival hung on. If the rank that it is compared with was there too, both left it together, and
the difference is the late rank's own. If not, the time for which it waited there passes on to whoever came last, who is
now compared with it; the rest of the blame goes further back along the late rank's own way, in the same manner.
A kernel of several transfers that all began with its own arrival is one communication: which ended last is chance.
Unless a fault is planted there, the cause is the host where idle time on that way explains half of it, else compute.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stepscope.simulate.programs.execute import Job
from stepscope.simulate.trace.trace import I64
from stepscope.simulate.truth.causes import cause_of, nearest
from stepscope.simulate.truth.meetings import Meetings

#: What a planted fault does to the ranks it hits.
_CAUSE = {
    "straggler": "compute",
    "imbalance": "compute",
    "slow-host": "host",
    "host-syncs": "host",
    "tiny-kernels": "host",
    "alloc": "host",
    "late-node": "host",
    "dataloader": "data",
    "slow-link": "network",
}


def straggler_rows(job: Job, m: Meetings) -> list[dict[str, Any]]:
    """Rows of `stragglers`, worst first. `raw_ns` is the blame before it is passed on."""
    world = job.scenario.world
    late, raw, hosted = (np.zeros(world, dtype=np.int64) for _ in range(3))
    last, second = m.last_side, m.second_side
    amount = m.start[last] - m.start[second]
    amount[m.n < 2] = 0
    np.add.at(raw, m.rank[last], amount)
    times = np.bincount(m.rank[last][amount > 0], minlength=world)
    before, free = _previous(job, m)
    beside = _beside(m, world)
    # All chains go back together, one meeting at a time; those that come to the same place go on as one.
    side, other, ns = last[amount > 0], m.rank[second][amount > 0], amount[amount > 0]
    while len(side):
        rank, at = m.rank[side], before[side]
        meeting = m.meeting[np.maximum(at, 0)]
        held = np.minimum(ns, m.start[m.last_side[meeting]] - m.start[np.maximum(at, 0)])
        own = (at < 0) | (m.side(meeting, other) >= 0) | np.isin(m.op[at] * world + other, beside)
        np.add.at(late, rank[own], ns[own])
        idle = own & (2 * free[side] > ns)
        np.add.at(hosted, rank[idle], ns[idle])
        go, rest = ~own & (held > 0), ~own & (ns > held)
        side, other, ns = _merged(
            np.concatenate([m.last_side[meeting][go], at[rest]]),
            np.concatenate([rank[go], other[rest]]),
            np.concatenate([held[go], (ns - held)[rest]]),
            world,
        )
    total = int(late.sum())
    rows = [
        {
            "rank": r,
            "late_ns": int(late[r]),
            "times_last": int(times[r]),
            "share_pct": 100.0 * int(late[r]) / total if total else 0.0,
            "cause": _planted(job, r) or ("host" if 2 * hosted[r] > late[r] else "compute"),
            "raw_ns": int(raw[r]),
        }
        for r in range(world)
    ]
    return sorted(rows, key=lambda row: (-row["late_ns"], row["rank"]))


def _merged(side: I64, other: I64, ns: I64, world: int) -> tuple[I64, I64, I64]:
    """Chains at the same side, compared with the same rank, as one."""
    key, place = np.unique(side * world + other, return_inverse=True)
    total = np.zeros(len(key), dtype=np.int64)
    np.add.at(total, place, ns)
    return key // world, key % world, total


def _previous(job: Job, m: Meetings) -> tuple[I64, I64]:
    """For each side, the side of the same rank that its arrival hung on (-1: none), and the idle time on the way."""
    op_before = np.full(int(m.base[-1]), -1, dtype=np.int64)
    free = np.zeros(int(m.base[-1]), dtype=np.int64)
    comm = (m.side_of_op >= 0).astype(np.int64)
    for sim, low, high in zip(job.sims, m.base[:-1].tolist(), m.base[1:].tolist(), strict=True):
        cause, between = cause_of(sim)
        found, idle = nearest(cause, between, comm[low:high])
        op_before[low:high] = np.where(found >= 0, found + low, -1)
        free[low:high] = idle
    at = op_before[m.op]
    return np.where(at >= 0, m.side_of_op[np.maximum(at, 0)], -1), free[m.op]


def _beside(m: Meetings, world: int) -> I64:
    """Op and peer (as op · world + peer) of every transfer that began last, or at the same moment, in its kernel."""
    last = m.start[m.last_side][m.meeting]
    latest = np.zeros(int(m.base[-1]), dtype=np.int64)
    np.maximum.at(latest, m.op, last)
    source, target = m.source[m.meeting], m.target[m.meeting]
    chosen = (source >= 0) & (last == latest[m.op])
    found: I64 = (m.op * world + np.where(m.rank == source, target, source))[chosen]
    return found


def _planted(job: Job, rank: int) -> str | None:
    node = job.mesh.ranks[rank].node
    for fault in job.scenario.planted:
        if fault.name not in _CAUSE:
            continue
        pair, where = fault.pair(), fault.params.get("node")
        if pair is not None or where is not None:
            hit = rank in (pair or ()) or node == where
        else:
            hit = fault.params.get("rank") == rank
        if hit:
            return _CAUSE[fault.name]
    return None
