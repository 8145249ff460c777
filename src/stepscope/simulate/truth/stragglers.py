"""Who was late, and what of it a planted fault caused: by simulating the same job without the fault.

`raw_ns` and `times_last` are facts of the job itself: at each communication the last rank to arrive is blamed for the
time after the last but one. `late_ns` is what the faults of a rank cost the others: at each communication, by how much
longer than in the job without them (same seed, same jitter) the last but one waited for the last. Where they waited
less than without, they had waited before, and it counts as nothing. What several ranks are hit by is shared evenly
among them. Ranks without a fault have no lateness, and no cause: they are victims.

`stragglers` follows blame to its root in one trace, and does not know what would have been without the fault. What the
schedule makes ranks wait for each other is in its `late_ns` too: what it gives the ranks at fault in this job, beyond
what it gives them in the job without, is to be compared with the `late_ns` here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepscope.simulate.job.faults import Fault
from stepscope.simulate.programs.execute import Job
from stepscope.simulate.trace.trace import I64
from stepscope.simulate.truth.facts import Rows
from stepscope.simulate.truth.meetings import Meetings

#: What a planted fault does to the ranks it hits.
_CAUSE = {
    "straggler": "compute",
    "more-launches": "compute",
    "larger-batch": "compute",
    "slow-python": "host",
    "imbalance": "compute",
    "slow-host": "host",
    "host-syncs": "host",
    "tiny-kernels": "host",
    "alloc": "host",
    "late-node": "host",
    "spike": "host",
    "drift": "host",
    "dataloader": "data",
    "slow-link": "network",
}


def straggler_rows(job: Job, m: Meetings, without: Sequence[Job]) -> Rows:
    """Rows of `stragglers`, worst first. `without` has, for each planted fault, the job without it."""
    world = job.scenario.world
    gap = gaps_of(m)
    raw, late = np.zeros(world, dtype=np.int64), np.zeros(world, dtype=np.int64)
    np.add.at(raw, m.rank[m.last_side], gap)
    times = np.bincount(m.rank[m.last_side][gap > 0], minlength=world)
    cause: dict[int, str] = {}
    for fault, other in zip(job.scenario.planted, without, strict=True):
        ranks = hit(job, fault)
        if fault.name in _CAUSE and len(ranks) < world:  # on all ranks, nobody stands out
            late[ranks] += added_wait(gap, gaps_of(Meetings(other))) // len(ranks)
            cause = dict.fromkeys(ranks, _CAUSE[fault.name]) | cause
    total = int(late.sum())
    rows = [
        {
            "rank": r,
            "late_ns": int(late[r]),
            "times_last": int(times[r]),
            "share_pct": 100.0 * int(late[r]) / total if total else 0.0,
            "cause": cause.get(r),
            "raw_ns": int(raw[r]),
        }
        for r in range(world)
    ]
    return sorted(rows, key=lambda row: (-row["late_ns"], row["rank"]))


def added_wait(gap: I64, without: I64) -> int:
    """By how much longer others waited for the last, at the communications where they did."""
    if len(gap) != len(without):
        raise ValueError("a fault changes what the job communicates")
    return int(np.maximum(gap - without, 0).sum())


def hit(job: Job, fault: Fault) -> list[int]:
    """Ranks that a fault is on."""
    pair, node = fault.pair(), fault.params.get("node")
    if pair is not None:
        return sorted(pair)
    return [r.rank for r in job.mesh.ranks if (r.node == node if node is not None else fault.hits(r.rank))]


def gaps_of(m: Meetings) -> I64:
    """At each communication, the time from the last arrival but one to the last."""
    return np.where(m.n > 1, m.start[m.last_side] - m.start[m.second_side], 0)
