"""The job played until nothing moves: when each call was enqueued, began and ended on each rank; never is `NEVER`.

A call begins when its host has enqueued it and what it depends on is done: the last call that the rank's own stream
waits for, the call before it in its group. A collective ends when all members are in it with the same call; a
transfer, when both ends are.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from random import Random

from stepscope.simulate.hang.faults import HangFault
from stepscope.simulate.hang.job import Call, Program

NEVER = 1 << 62
#: Calls in which every rank may have a size of its own.
UNEVEN = ("all_to_all", "gather", "scatter")
_HOST_NS = 40_000
_TRANSFER_NS = 1_500_000


@dataclass
class Played:
    """By rank and call: times in nanoseconds from the job's start, and the sequence number in its group."""

    enqueued: list[list[int]]
    began: list[list[int]]
    ended: list[list[int]]
    seq: list[list[int]]

    @property
    def last_ns(self) -> int:
        """The last moment at which anything happened."""
        return max(t for times in (self.enqueued, self.began, self.ended) for row in times for t in row if t < NEVER)

    @property
    def hung(self) -> bool:
        return any(t == NEVER for row in self.ended for t in row)


class _Engine:
    def __init__(self, made: Program, fault: HangFault | None) -> None:
        self.made, self.fault = made, fault
        self.random = Random(f"{made.job.seed} play")
        sizes = [len(calls) for calls in made.calls]
        self.enqueued, self.began, self.ended = ([[NEVER] * n for n in sizes] for _ in range(3))
        self.seq = [[0] * n for n in sizes]
        #: by rank and call: calls whose end it waits for, and calls that wait for its end
        self.needs: list[list[list[int]]] = []
        self.left: list[list[int]] = []
        self.waiting: list[list[list[int]]] = []
        self.arrived: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
        self.pair_of: list[list[list[tuple[int, ...]]]] = []
        self.host_at = [0] * len(sizes)
        self.dead: set[int] = set()
        #: calls that nothing holds back any more; hosts that go on
        self.ready: list[tuple[int, int]] = []
        self.hosts: list[tuple[int, int, int]] = []
        for rank, calls in enumerate(made.calls):
            self._depend(rank, calls)

    def _depend(self, rank: int, calls: list[Call]) -> None:
        needs: list[list[int]] = []
        chain = -1
        under_way: list[int] = []
        last: dict[int, int] = {}
        counts: dict[tuple[int, bool], int] = defaultdict(int)
        pair_counts: dict[tuple[int, int, int], int] = defaultdict(int)
        pairs: list[list[tuple[int, ...]]] = []
        for n, call in enumerate(calls):
            hosted = bool(self.made.groups[call.group].backend)
            own = {chain} if call.pairs else {last.get(call.group, -1)} if hosted else {chain, last.get(call.group, -1)}
            own.discard(-1)
            if call.joins:
                own |= set(under_way)
                under_way = []
            needs.append(sorted(own))
            if call.chain:
                chain = n
            elif not hosted:
                under_way.append(n)
            if not call.pairs:
                last[call.group] = n
            counts[call.group, bool(call.pairs)] += 1
            self.seq[rank][n] = counts[call.group, bool(call.pairs)]
            keys: list[tuple[int, ...]] = []
            for pair in call.pairs:
                key = (call.group, *pair)
                pair_counts[key] += 1
                keys.append((*key, pair_counts[key]))
            pairs.append(keys)
        self.pair_of.append(pairs)
        self.needs.append(needs)
        self.left.append([len(own) for own in needs])
        waiting: list[list[int]] = [[] for _ in calls]
        for n, before in enumerate(needs):
            for m in before:
                waiting[m].append(n)
        self.waiting.append(waiting)

    def _stopped(self, rank: int, n: int, *names: str) -> bool:
        fault = self.fault
        return fault is not None and fault.name in names and fault.rank == rank and n >= fault.call

    def enqueue(self, rank: int, n: int, now: int) -> None:
        """The host enqueues calls from `n` on, up to one that it waits for."""
        ready = []
        calls = self.made.calls[rank]
        while n < len(calls):
            if self._stopped(rank, n, "host", "crash", "oom"):
                break
            now += _HOST_NS
            self.enqueued[rank][n] = now
            if not self.left[rank][n]:
                ready.append(n)
            n += 1
            if calls[n - 1].sync:
                break
        self.host_at[rank] = n
        for m in ready:
            self.begin(rank, m)

    def begin(self, rank: int, n: int) -> None:
        if self.began[rank][n] != NEVER or self.enqueued[rank][n] == NEVER or self.left[rank][n]:
            return
        call = self.made.calls[rank][n]
        if self._stopped(rank, n, "gpu") and not self.made.groups[call.group].backend:
            return
        before = max((self.ended[rank][m] for m in self.needs[rank][n]), default=0)
        self.began[rank][n] = max(self.enqueued[rank][n], before) + call.compute_ns
        if call.pairs:
            self._transfer(rank, n)
            return
        key = (call.group, self.seq[rank][n])
        self.arrived[key].append((rank, n))
        if len(self.arrived[key]) == len(self.made.groups[call.group].members):
            self._complete(self.arrived[key])

    def _transfer(self, rank: int, n: int) -> None:
        for key in self.pair_of[rank][n]:
            self.arrived[key].append((rank, n))
        for key in self.pair_of[rank][n]:
            if len(self.arrived[key]) == 2:
                for other in list(self.arrived[key]):
                    keys = self.pair_of[other[0]][other[1]]
                    if all(len(self.arrived[k]) == 2 for k in keys):
                        self._finish([other], [p for k in keys for p in self.arrived[k]])

    def _complete(self, members: list[tuple[int, int]]) -> None:
        calls = [self.made.calls[rank][n] for rank, n in members]
        first = calls[0]
        if any((c.kind, c.dtype) != (first.kind, first.dtype) for c in calls):
            return
        if first.kind not in UNEVEN and any((c.elements, c.out) != (first.elements, first.out) for c in calls):
            return
        self._finish(members, members)

    def _dead(self, ending: list[tuple[int, int]], members: list[tuple[int, int]]) -> bool:
        """Whether the link that they need is dead: from the planted call on, for all later calls of its group."""
        fault = self.fault
        if fault is None or fault.name != "link":
            return False
        call = self.made.calls[ending[0][0]][ending[0][1]]
        if (fault.rank, fault.call) in members:
            self.dead.add(call.group)
            return True
        return call.group in self.dead and not call.pairs

    def _finish(self, ending: list[tuple[int, int]], members: list[tuple[int, int]]) -> None:
        if self._dead(ending, members):
            return
        end = max(self.began[r][m] for r, m in members) + round(_TRANSFER_NS * self.random.uniform(0.8, 1.4))
        done = [(r, m) for r, m in ending if self.ended[r][m] == NEVER]
        for r, m in done:
            self.ended[r][m] = end
        for r, m in done:
            for waiter in self.waiting[r][m]:
                self.left[r][waiter] -= 1
                if not self.left[r][waiter]:
                    self.ready.append((r, waiter))
            if self.made.calls[r][m].sync and self.host_at[r] == m + 1:
                self.hosts.append((r, m + 1, end))


def play(made: Program, fault: HangFault | None) -> Played:
    """Play the job."""
    engine = _Engine(made, fault)
    for rank in range(len(made.calls)):
        engine.enqueue(rank, 0, 0)
    while engine.ready or engine.hosts:
        while engine.ready:
            engine.begin(*engine.ready.pop())
        if engine.hosts:
            engine.enqueue(*engine.hosts.pop())
    return Played(engine.enqueued, engine.began, engine.ended, engine.seq)
