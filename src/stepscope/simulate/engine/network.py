"""What ranks do together: collectives end when the last rank has arrived and the bytes are through."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from stepscope.simulate.job import costs
from stepscope.simulate.job.blocks import POOL, SHIFT
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.trace.trace import SimGroup, SimRank

if TYPE_CHECKING:
    from stepscope.simulate.engine.rank import RankSim

_LAST = POOL - 1
#: Rings move in step, so that all ranks end together; in an all-to-all each ends with its own bytes.
_TOGETHER = ("all_reduce", "all_gather", "reduce_scatter")


class Transfer(NamedTuple):
    """One side of a point-to-point transfer. The peer is a global rank; both sides must mean the same `tag`."""

    send: bool
    peer: int
    size: int
    tag: str = ""


class Matched(NamedTuple):
    """A transfer that took place: between whom, the ops on either side, and when each side had it."""

    group: int
    source: int
    target: int
    number: int
    size: int
    source_op: int
    target_op: int
    source_end: int
    target_end: int


class Part:
    """One rank's side of a communication."""

    __slots__ = ("done", "end", "left", "op", "sim", "size", "slot", "start")

    def __init__(self, sim: RankSim, op: int, slot: int, start: int, size: int, left: int = 1) -> None:
        self.sim, self.op, self.slot, self.start, self.size, self.left = sim, op, slot, start, size, left
        self.end, self.done = 0, False


class Network:
    """Matches the ranks' calls and says when they end. `ready` gets the ranks that can go on."""

    def __init__(self, s: Scenario, ranks: list[SimRank], groups: list[SimGroup], jitter: list[int]) -> None:
        self.groups, self._jitter, self._ranks = groups, jitter, ranks
        self.ready: deque[RankSim] = deque()
        self._slow = [f for f in s.planted if f.name == "slow-link"]
        self._group_link = [self._link(g.ranks) for g in groups]
        self._pair_link: dict[tuple[int, int], tuple[float, float]] = {}
        self._seq: dict[tuple[int, int], int] = {}
        self._batches: dict[tuple[int, int], int] = {}
        self._arrived: dict[tuple[int, int], list[Part]] = {}
        self._sends: dict[tuple[int, int, int], deque[tuple[Part, str]]] = {}
        self._receives: dict[tuple[int, int, int], deque[tuple[Part, str]]] = {}
        #: every point-to-point transfer, as matched
        self.transfers: list[Matched] = []
        self._transfer_no: dict[tuple[int, int, int], int] = {}

    def open_count(self) -> int:
        """Communications that somebody still waits for."""
        unmatched = [q for side in (self._sends, self._receives) for q in side.values()]
        return len(self._arrived) + sum(map(len, unmatched))

    # -- collectives ---------------------------------------------------------------------------------------------------

    def join(self, sim: RankSim, kind: str, group: int, op: int, slot: int, start: int, size: int) -> tuple[Part, int]:
        """A rank has arrived at its next collective of a communicator. Returns its part, and the ordinal."""
        counter = (group, sim.rank)
        seq = self._seq[counter] = self._seq.get(counter, -1) + 1
        part = Part(sim, op, slot, start, size)
        parts = self._arrived.setdefault((group, seq), [])
        parts.append(part)
        if len(parts) == len(self.groups[group].ranks):
            del self._arrived[group, seq]
            self._complete(kind, group, seq, parts)
        return part, seq

    def _complete(self, kind: str, group: int, seq: int, parts: list[Part]) -> None:
        n = len(parts)
        latency, per_byte = self._group_link[group]
        share = 2 * (n - 1) / n if kind == "all_reduce" else n - 1
        last = max(p.start for p in parts)
        k = (seq * 6151 + group * 389) & _LAST
        most = max(p.size for p in parts)
        together = kind in _TOGETHER
        whole = self._jittered(latency + most * share * per_byte, k)
        for part in parts:
            rank = part.sim.rank
            took = whole if together else self._jittered(latency + part.size * share * per_byte, k + 1 + rank)
            self._finish(part, last + took + self._spread(k, rank))

    def _jittered(self, ns: float, k: int) -> int:
        return int(ns) * self._jitter[k & _LAST] >> SHIFT

    def _spread(self, k: int, rank: int) -> int:
        """Ranks notice the end a little apart."""
        return (k * 7 + rank * 131) % costs.END_SPREAD

    # -- point to point ------------------------------------------------------------------------------------------------

    def exchange(
        self, sim: RankSim, group: int, transfers: list[Transfer], op: int, slot: int, start: int
    ) -> tuple[Part, int]:
        """A rank has arrived with a batch of sends and receives. Returns its part, and the ordinal of its batch."""
        counter = (group, sim.rank)
        seq = self._batches[counter] = self._batches.get(counter, -1) + 1
        part = Part(sim, op, slot, start, 0, left=len(transfers))
        for send, peer, size, tag in transfers:
            key = (group, sim.rank, peer) if send else (group, peer, sim.rank)
            mine, theirs = (self._sends, self._receives) if send else (self._receives, self._sends)
            waiting = theirs.get(key)
            if waiting:
                other, sent = waiting.popleft()
                if sent != tag:
                    raise RuntimeError(
                        f"rank {sim.rank} exchanges {tag} where rank {peer} has {sent}: a broken schedule"
                    )
                self._transfer(key, (part, other) if send else (other, part), size)
            else:
                mine.setdefault(key, deque()).append((part, tag))
        return part, seq

    def _transfer(self, key: tuple[int, int, int], sides: tuple[Part, Part], size: int) -> None:
        group, source, target = key
        number = self._transfer_no[key] = self._transfer_no.get(key, -1) + 1
        link = self._pair_link.get((source, target))
        if link is None:
            link = self._pair_link[source, target] = self._link((source, target))
        k = (number * 6151 + source * 389 + target * 97) & _LAST
        end = max(p.start for p in sides) + self._jittered(link[0] + size * link[1], k)
        ends = [end + self._spread(k, p.sim.rank) for p in sides]
        self.transfers.append(Matched(group, source, target, number, size, sides[0].op, sides[1].op, *ends))
        for part, at in zip(sides, ends, strict=True):
            part.end = max(part.end, at)
            part.left -= 1
            if not part.left:
                self._finish(part, part.end)

    def _finish(self, part: Part, end: int) -> None:
        part.done = True
        part.sim.arrived(part, end)
        if part.sim.blocked is part:
            self.ready.append(part.sim)

    def _link(self, members: tuple[int, ...]) -> tuple[float, float]:
        """Latency, and nanoseconds per byte, of the slowest link between these ranks."""
        nodes = {self._ranks[r].node for r in members}
        across = len(nodes) > 1
        latency = costs.INTER_LATENCY if across else costs.INTRA_LATENCY
        bandwidth = costs.INTER_BANDWIDTH if across else costs.INTRA_BANDWIDTH
        for fault in self._slow:
            pair, node = fault.pair(), fault.params["node"]
            if (pair and set(pair) <= set(members)) or (node in nodes and across):
                bandwidth /= fault.params["factor"]
        return float(latency), 1 / bandwidth
