"""The critical path of the step, walked backwards from its last op (semantics §7), on the true clock.

Segments: `compute` and `copy` (an op runs), `comm` (a transfer, from the last arrival on, on the rank that came last),
`queue` (between an op and the one that it held up), `launch` (from the launch call to the op), `host` (before it),
`sync` (the host returns from waiting for the GPU). They are contiguous, and the first starts with the step.
"""

from __future__ import annotations

import numpy as np

from stepscope.simulate.engine.rank import RankSim
from stepscope.simulate.engine.record import BY_LAUNCH, BY_STREAM
from stepscope.simulate.job.kernels import STREAM_IDS
from stepscope.simulate.programs.assemble import bytes_of, table
from stepscope.simulate.programs.execute import Job
from stepscope.simulate.trace.trace import I64, KERNEL
from stepscope.simulate.truth.facts import Rows
from stepscope.simulate.truth.meetings import Meetings


class _Rank:
    """What the walk asks of one rank, made when it first gets there."""

    def __init__(self, job: Job, rank: int) -> None:
        self.sim = sim = job.sims[rank]
        self.before = before_on_stream(sim)
        self.wait_call, self.wait_op, self.wait_start = waits_of_host(sim)
        self.kernel = bytes_of(sim.op_kind) == KERNEL


class _Walk:
    def __init__(self, job: Job, m: Meetings, begin: int) -> None:
        self.job, self.m, self.begin = job, m, begin
        self.ranks: dict[int, _Rank] = {}
        self.rows: Rows = []

    def rank(self, number: int) -> _Rank:
        if number not in self.ranks:
            self.ranks[number] = _Rank(self.job, number)
        return self.ranks[number]

    def add(self, rank: int, kind: str, op: int, start: int, end: int) -> bool:
        """A segment that ends where the last one started. True when the beginning of the step is reached."""
        start = max(start, self.begin)
        if start < end:
            sim = self.job.sims[rank]
            within = sim.op_range[op]
            self.rows.append(
                {
                    "rank": rank,
                    "kind": kind,
                    "stream": None if kind in ("host", "sync", "launch") else STREAM_IDS[sim.op_slot[op]],
                    "name": self.job.names[sim.op_name[op]],
                    "range": self.job.names[sim.range_name[within]] if within >= 0 else None,
                    "start_ns": start,
                    "end_ns": end,
                    "dur_ns": end - start,
                }
            )
        return start <= self.begin

    def run(self, rank: int, op: int) -> None:
        """Walk from the end of an op."""
        end = self.job.sims[rank].op_end[op]
        while True:
            side = int(self.m.side_of_op[self.m.base[rank] + op])
            if side >= 0:
                last = int(self.m.last_side[self.m.meeting[side]])
                rank, op = int(self.m.rank[last]), int(self.m.op[last] - self.m.base[self.m.rank[last]])
                kind = "comm"
            else:
                kind = "compute" if self.rank(rank).kernel[op] else "copy"
            start = self.job.sims[rank].op_start[op]
            if self.add(rank, kind, op, start, end):
                return
            released = self._released(rank, op, start)
            if released is None:
                return
            op, end = released

    def _released(self, rank: int, op: int, at: int) -> tuple[int, int] | None:
        """From the start of an op to the end of the op of this rank that it waited for; None at the beginning."""
        here = self.rank(rank)
        sim = here.sim
        while sim.op_why[op] == BY_LAUNCH:
            call = sim.op_call[op]
            k = int(np.searchsorted(here.wait_call, call, side="right")) - 1
            # A launch that blocked on a full queue went on when an op started.
            stuck = k >= 0 and here.wait_call[k] == call
            until = sim.call_end[call] if stuck else sim.call_start[call]
            if self.add(rank, "launch", op, until, at):
                return None
            at = until
            if k < 0:
                self.add(rank, "host", op, self.begin, at)
                return None
            waited, blocked = int(here.wait_op[k]), int(here.wait_call[k])
            if not stuck:
                if self.add(rank, "host", op, sim.call_end[blocked], at):
                    return None
                at = sim.call_end[blocked]
            if not here.wait_start[k]:
                if self.add(rank, "sync", waited, sim.op_end[waited], at):
                    return None
                return waited, sim.op_end[waited]
            op = waited  # the host went on when this op started: what released it?
        source = int(here.before[op]) if sim.op_why[op] == BY_STREAM else sim.op_source[op]
        if self.add(rank, "queue", op, sim.op_end[source], at):
            return None
        return source, sim.op_end[source]


def path_rows(job: Job, m: Meetings, begin: int, rank: int, op: int) -> Rows:
    """Rows of `critical-path` back from the end of an op, in order of time."""
    walk = _Walk(job, m, begin)
    walk.run(rank, op)
    return [{"order": i, **row} for i, row in enumerate(reversed(walk.rows))]


def before_on_stream(sim: RankSim) -> I64:
    """The op before each op on its stream, -1 for the first; in launch order."""
    slot = bytes_of(sim.op_slot)
    order = np.argsort(slot, kind="stable")
    before = np.full(len(order), -1, dtype=np.int64)
    same = slot[order][1:] == slot[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def waits_of_host(sim: RankSim) -> tuple[I64, I64, I64]:
    """Where the host waited for the GPU, in order: call, op, and 1 where for the op's start alone (a full queue)."""
    call, op, start = table(sim.host_wait, 3)
    return call, op, start
