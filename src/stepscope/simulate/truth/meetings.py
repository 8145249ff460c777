"""Where ranks met: every collective and every transfer, with who came when, on the true clock.

A point-to-point kernel can hold several transfers; it ended with the last of them, and that one is its meeting.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from stepscope.simulate.programs.assemble import ints, table
from stepscope.simulate.programs.execute import Job
from stepscope.simulate.trace.trace import I64
from stepscope.simulate.truth.facts import Rows

#: Bytes that nccl-tests calls the size of the operation, per byte of NCCL's message, and its bus factor, for n ranks.
_WHOLE = {"all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}


class Meetings:
    """Sides (one per rank and meeting) sorted by meeting and rank; meetings as slices of them."""

    def __init__(self, job: Job) -> None:
        self.job = job
        sizes = [len(sim.op_start) for sim in job.sims]
        #: ops of all ranks in one row of numbers
        self.base = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.op_start = np.concatenate([ints(sim.op_start) for sim in job.sims])
        self.op_end = np.concatenate([ints(sim.op_end) for sim in job.sims])
        parts = [np.vstack([table(sim.comm, 6), np.full(len(sim.comm), sim.rank)]) for sim in job.sims]
        op, group, seq, size, _, kind, rank = np.hstack(parts)
        p2p = job.names.index("send_recv") if "send_recv" in job.names else -1
        together = kind != p2p
        op, group, seq, size, kind, rank = (x[together] for x in (op, group, seq, size, kind, rank))
        t = table(job.transfers, 9)
        # Both kinds as (group, kind, ordinal, source, target): a transfer differs by its pair, a collective has none.
        none = np.full(len(op), -1)
        send = np.full(t.shape[1], p2p)
        columns = [
            np.concatenate([group, t[0], t[0]]),
            np.concatenate([kind * 0, send * 0 + 1, send * 0 + 1]),
            np.concatenate([seq, t[3], t[3]]),
            np.concatenate([none, t[1], t[1]]),
            np.concatenate([none, t[2], t[2]]),
        ]
        rank = np.concatenate([rank, t[1], t[2]])
        order = np.lexsort([rank, *columns[::-1]])
        key = np.stack(columns)[:, order]
        new = np.concatenate([[True], (key[:, 1:] != key[:, :-1]).any(axis=0)]) if key.shape[1] else np.zeros(0, bool)
        self.first = np.flatnonzero(new)
        self.meeting = np.cumsum(new) - 1
        self.rank = rank[order]
        self.op = np.concatenate([op, t[5], t[6]])[order] + self.base[self.rank]
        self.size = np.concatenate([size, t[4], t[4]])[order]
        self.kind = np.concatenate([kind, send, send])[order][self.first]
        self.group, _, self.seq, self.source, self.target = (x[self.first] for x in key)
        self.start = self.op_start[self.op]
        #: when this side had it; the kernel may go on with other transfers
        self.done = np.concatenate([np.zeros(len(op), np.int64), t[7], t[8]])[order]
        self.n = np.diff(np.append(self.first, len(self.rank)))

    @cached_property
    def _by_arrival(self) -> I64:
        return np.lexsort([-self.rank, self.start, self.meeting])

    @cached_property
    def last_side(self) -> I64:
        """Side of the last to arrive at each meeting (of several, the lowest rank)."""
        last_side: I64 = self._by_arrival[self.first + self.n - 1]
        return last_side

    @cached_property
    def second_side(self) -> I64:
        """Side of the last but one."""
        second_side: I64 = self._by_arrival[self.first + np.maximum(self.n - 2, 0)]
        return second_side

    @cached_property
    def side_of_op(self) -> I64:
        """The side that ended each communication op, by op; -1 for all others."""
        side = np.full(int(self.base[-1]), -1, dtype=np.int64)
        # Assigned in order of ending: the last one stays.
        order = np.argsort(self.done, kind="stable")
        side[self.op[order]] = order
        return side

    def rows(self) -> Rows:
        """Rows of `collectives`, in order of the last arrival."""
        if len(self.first) == 0:
            return []
        end = self.op_end[self.op]
        last = self.start[self.last_side]
        transfer = np.maximum(np.minimum.reduceat(end, self.first) - last, 0)
        wait = last - np.minimum.reduceat(self.start, self.first)
        skew = np.maximum.reduceat(end, self.first) - np.minimum.reduceat(end, self.first)
        size = np.maximum.reduceat(self.size, self.first)
        names, groups = self.job.names, self.job.mesh.groups
        rows = []
        for m in np.lexsort([self.seq, self.group, last]).tolist():
            op, n, ns = names[int(self.kind[m])], int(self.n[m]), int(transfer[m])
            total = int(size[m]) * (n if op in _WHOLE else 1)
            members = groups[int(self.group[m])].ranks
            rows.append(
                {
                    "group": f"0x{groups[int(self.group[m])].id:016x}",
                    "op": op,
                    "seq": int(self.seq[m]),
                    "ranks": ranks_text(members) if self.source[m] < 0 else f"{self.source[m]}>{self.target[m]}",
                    "bytes": total,
                    "transfer_ns": ns,
                    "max_wait_ns": int(wait[m]),
                    "last_rank": int(self.rank[self.last_side[m]]),
                    "algbw_gbps": total / ns if ns else None,
                    "busbw_gbps": total / ns * bus_factor(op, n) if ns else None,
                    "skew_ns": int(skew[m]),
                }
            )
        return rows


def bus_factor(op: str, n: int) -> float:
    """nccl-tests' factor from algorithm to bus bandwidth."""
    if op == "all_reduce":
        return 2 * (n - 1) / n
    return (n - 1) / n if op in _WHOLE else 1.0


def ranks_text(ranks: tuple[int, ...]) -> str:
    """`0-3,8`: ranks as the command line takes them."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
