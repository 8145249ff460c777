"""The replay itself: runs and host waits of all ranks, in the order in which they happened, each as early as it can be.

Every run and every wait is a node; so is the beginning of each rank. A node's time is that of the node that it counts
from (`base`) plus `add`, or the end of a run that it waits for plus a lag, whichever is latest. A communication ends
when the last of its ranks has arrived, wherever that now is, and its transfer is over: that is worked out when its end
is first asked for.

Hundreds of ranks have millions of nodes: they are arrays, of which a block at a time becomes Python numbers.
"""

from __future__ import annotations

from array import array

import numpy as np
from msgspec import Struct

from stepscope.derive.comm.common_clock import CommonClock
from stepscope.derive.graph.critical_path import Path
from stepscope.derive.replay.change import Change
from stepscope.derive.replay.graph import BEFORE, Runs
from stepscope.intervals.arrays import F64, I64, NONE

#: Nodes that are Python numbers at a time.
_BLOCK = 1 << 16
_NEVER = float("-inf")


class Played(Struct, frozen=True):
    """A step, replayed: its length, and how long before its end each rank's host was through with it."""

    length: int
    ahead: dict[int, float]


def play(path: Path, nodes: Nodes, graphs: list[Runs], change: Change) -> Played:
    """The step, replayed. `nodes` are those of `graphs`."""
    begin = [at - change.host_start_earlier_ns.get(g.rank, 0) for at, g in zip(nodes.begin, graphs, strict=True)]
    end, hosts = _play(nodes, begin, _Meetings(path, nodes, graphs, change))
    through = {g.rank: end - at - g.tail for g, at in zip(graphs, hosts, strict=True)}
    return Played(round(end - path.begin), through)


class Nodes:
    """Nodes of all ranks: waits, then runs, then beginnings. Columns are in the order in which nodes happened."""

    def __init__(self, clock: CommonClock, graphs: list[Runs]) -> None:
        waits, runs = ([len(getattr(g, c)) for g in graphs] for c in ("wait_return", "start"))
        self.runs = sum(waits)  # the first run
        self.begins = self.runs + sum(runs)  # the first beginning, as a change may have it
        self.recorded = self.begins + len(graphs)  # the first beginning as it was
        wait_of, run_of = (np.r_[0, np.cumsum(n)[:-1]].astype(np.int64) for n in (waits, runs))
        self.first_run = run_of + self.runs
        base: list[I64] = []
        add: list[F64] = []
        one: list[I64] = []
        one_lag: list[F64] = []
        two: list[I64] = []
        two_lag: list[F64] = []
        time: list[I64] = []
        for k, g in enumerate(graphs):  # waits of all ranks first
            n = len(g.wait_return)
            before = wait_of[k] + np.arange(n, dtype=np.int64) - 1
            before[:1] = self.begins + k
            base.append(before)
            add.append(g.wait_gap)
            one.append(self._run(k, g.wait_for))
            one_lag.append(g.wait_lag.astype(np.float64))
            two.append(np.full(n, NONE))
            two_lag.append(np.zeros(n))
            time.append(clock.at(g.rank, g.wait_return))
        for k, g in enumerate(graphs):
            base.append(np.where(g.epoch != NONE, wait_of[k] + g.epoch, self.begins + k))
            add.append(g.ready)
            one.append(self._run(k, g.after))
            one_lag.append(g.after_lag + g.work)
            two.append(self._run(k, g.event))
            two_lag.append(g.event_lag + g.work)
            time.append(clock.at(g.rank, g.start))
        graph = np.repeat(np.r_[np.arange(len(graphs)), np.arange(len(graphs))], [*waits, *runs])
        kind = np.repeat([0, 1], [self.runs, self.begins - self.runs])
        self.node = np.lexsort((graph, kind, np.concatenate(time)))
        self.base, self.one, self.two = (np.concatenate(c)[self.node] for c in (base, one, two))
        self.add, self.one_lag, self.two_lag = (np.concatenate(c)[self.node] for c in (add, one_lag, two_lag))
        self.begin = [clock.moment(g.rank, g.begin) for g in graphs]
        #: by graph: its last wait, or its beginning
        self.last_wait = np.where(np.array(waits) > 0, wait_of + waits - 1, self.begins + np.arange(len(graphs)))
        self.final = np.concatenate([self.first_run[k] + g.final for k, g in enumerate(graphs)])
        #: by run: the graph it is of
        self.graph_of_run = np.repeat(np.arange(len(graphs)), runs)

    def _run(self, k: int, run: I64) -> I64:
        """Runs of a graph as nodes."""
        return np.where(run == BEFORE, self.recorded + k, np.where(run != NONE, self.first_run[k] + run, NONE))


class _Meetings:
    """Communication runs by number: their meetings, and what is left after the transfer until their rank leaves."""

    def __init__(self, path: Path, nodes: Nodes, graphs: list[Runs], change: Change) -> None:
        comm = np.concatenate([g.comm for g in graphs]) if graphs else np.empty(0, np.int64)
        ranks = np.array([g.rank for g in graphs], dtype=np.int64)
        rows = np.flatnonzero(comm != NONE)
        #: by run: its number among communications, NONE for all others
        self.number = np.full(len(comm), NONE, dtype=np.int64)
        self.number[rows] = np.arange(len(rows))
        instant = [g.hidden | np.isin(g.comm, change.of(change.transfers_instant, g.rank)) for g in graphs]
        hidden = np.concatenate(instant)[rows] if graphs else np.empty(0, bool)
        dur = np.concatenate([g.dur for g in graphs])[rows] if graphs else np.empty(0, np.int64)
        self.hidden: list[bool] = hidden.tolist()
        self.alone: list[int] = np.where(hidden, 0, dur).tolist()
        self.rest = np.zeros(len(rows), dtype=np.int64)
        self.took: list[int] = []
        of, meeting = np.empty(0, np.int64), np.empty(0, np.int64)
        key = (ranks[nodes.graph_of_run[rows]] << 40) | comm[rows]
        if path.met is not None and len(rows):
            met = path.met
            order = np.argsort(key)
            side = (met.rank << 40) | met.matched.sides["op"].to_numpy()
            at = order[np.minimum(np.searchsorted(key[order], side), len(order) - 1)]
            sides = np.flatnonzero(key[at] == side)
            sides = sides[np.argsort(at[sides], kind="stable")]
            of, meeting = at[sides], met.meeting[sides]
            through = np.full(len(rows), np.iinfo(np.int64).min)
            np.maximum.at(through, of, (met.last + met.transfer)[meeting])
            self.rest[of] = np.maximum(met.end[sides] - through[of], 0)
            took = met.transfer.copy()
            for m, less in change.transfer_less_ns.items():
                took[m] = max(int(took[m]) - less, 0)
            self.took = took.tolist()
        self._sooner(key, change)
        self.first: list[int] = np.searchsorted(of, np.arange(len(rows) + 1)).tolist()
        self.meeting: list[int] = meeting.tolist()

    def _sooner(self, key: I64, change: Change) -> None:
        for rank, (ops, by) in change.departure_less_ns.items():
            order = np.argsort(key)
            wanted = (rank << 40) | ops
            at = order[np.minimum(np.searchsorted(key[order], wanted), len(order) - 1)] if len(order) else ops[:0]
            hit = key[at] == wanted if len(order) else np.zeros(0, dtype=bool)
            self.rest[at[hit]] = np.maximum(self.rest[at[hit]] - by[hit], 0)


def _play(nodes: Nodes, begin: list[int], met: _Meetings) -> tuple[float, list[float]]:
    """When the last rank is through, and when the last wait of each host returned."""
    nan = float("nan")
    value: array[float] = array(
        "d", np.r_[np.zeros(nodes.runs), np.full(nodes.begins - nodes.runs, nan), begin, nodes.begin].tobytes()
    )
    number: array[int] = array("q", np.r_[np.full(nodes.runs, NONE), met.number].astype(np.int64).tobytes())
    began = [nan] * len(met.rest)
    arrived = [_NEVER] * len(met.took)
    first, meeting, took, rest = met.first, met.meeting, met.took, met.rest.tolist()

    def end(node: int) -> float:
        """When a communication that began is through: known once all who meet in it have begun."""
        n = number[node]
        arrived_at = began[n] if n >= 0 else nan
        if arrived_at != arrived_at:  # later than it should be, by clocks that disagree
            return float(begin[int(nodes.graph_of_run[node - nodes.runs])])
        meetings = meeting[first[n] : first[n + 1]]
        if not meetings:
            at = arrived_at + met.alone[n]
        elif met.hidden[n]:
            at = max([arrived[m] for m in meetings])
        else:
            at = max([arrived[m] + took[m] for m in meetings]) + rest[n]
        value[node] = at
        return at

    for lo in range(0, len(nodes.node), _BLOCK):
        part = slice(lo, lo + _BLOCK)
        columns = (nodes.node, nodes.base, nodes.add, nodes.one, nodes.one_lag, nodes.two, nodes.two_lag)
        for node, base, add, one, one_lag, two, two_lag in zip(*(c[part].tolist() for c in columns), strict=True):
            at = value[base] + add
            if one >= 0:  # spelled out: this is where a replay spends its time
                through = value[one]
                through = (through if through == through else end(one)) + one_lag
                if through > at:
                    at = through
            if two >= 0:
                through = value[two]
                through = (through if through == through else end(two)) + two_lag
                if through > at:
                    at = through
            n = number[node]
            if n < 0:
                value[node] = at
                continue
            began[n] = at
            for m in meeting[first[n] : first[n + 1]]:
                if at > arrived[m]:
                    arrived[m] = at
    over = max(value[node] if value[node] == value[node] else end(node) for node in nodes.final.tolist())
    return over, [value[node] for node in nodes.last_wait.tolist()]
