"""Where the waiting ends: ranks that wait for nobody, meetings to which all have come, and rings of ranks that wait
for each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from stepscope.hang.waits import Meeting, Waits, members_of
from stepscope.model.flight import COMPLETED, Flight

#: Ranks from which the shortest ring is looked for.
_MOST_STARTS = 64
Node = int | Meeting


class Ends(msgspec.Struct):
    """What everybody waits for, directly or through others."""

    #: ranks with a dump that have no call under way, although others wait for them: their host stopped
    idle: list[int]
    #: ranks whose GPU has begun nothing of what they enqueued
    stuck: list[int]
    #: ranks of which the same can be said of what their ring holds, but it lost what they enqueued before that
    blind: list[int]
    #: ranks without a dump that others wait for
    unseen: list[int]
    #: meetings to which all members have come
    full: list[Meeting]
    #: the same, where a member may be elsewhere: in a call that its ring has lost, or in one that others hold up
    loose: list[Meeting]
    #: rings of ranks, smallest first
    rings: list[list[int]]
    #: by end, when the first call that waits for it was made
    since: dict[Node, int]
    #: by meeting, when the first call of those that are in it was made
    held_since: dict[Meeting, int]


def ends(flight: Flight, waits: Waits) -> Ends:
    """The ends of all chains."""
    there = set(flight.ranks)
    waited = {other for absent in waits.absent.values() for other in absent}
    idle = sorted(rank for rank in waited & there if not waits.pending[rank])
    begun_nothing = {rank for rank in waited & there if _stands(flight, waits, rank)}
    unknown = _blind(flight)
    stuck, blind = sorted(begun_nothing - unknown), sorted(begun_nothing & unknown)
    unseen = sorted(waited - there)
    if unseen and not idle:  # those that wait for it may be among those without a dump
        quiet = [rank for rank in there if not waits.pending[rank]]
        idle = sorted(quiet) if len(quiet) * 4 <= len(there) else []
    if unseen and not stuck:
        still = [rank for rank in there - unknown if _stands(flight, waits, rank)]
        stuck = sorted(still) if len(still) * 4 <= len(there) else []
    come = sorted(meeting for meeting, absent in waits.absent.items() if not absent)
    full = [m for m in come if flight.timed or not any(_elsewhere(waits, r, unknown) for r in members_of(flight, m))]
    loose = [m for m in come if m not in set(full)]
    ends = Ends(idle, stuck, blind, unseen, full, loose, _rings(waits, set(unseen), flight.timed), {}, {})
    for meeting, absent in waits.absent.items():
        rows = [row for rank, row in waits.came[meeting].items() if row in waits.running.get(rank, [])]
        when = min((int(flight.calls.created_ns[row]) for row in rows), default=0)
        ends.held_since[meeting] = when
        held: Sequence[Node] = absent or [meeting]
        for end in held:
            ends.since[end] = min(ends.since.get(end, when), when)
    return ends


def _stands(flight: Flight, waits: Waits, rank: int) -> bool:
    """Whether a rank's GPU has begun nothing of what it is to do, whatever threads of its host are in."""
    own = {row for row in waits.pending[rank] if not flight.calls.hosted[row]}
    return bool(own) and own.isdisjoint(waits.running[rank])


def _elsewhere(waits: Waits, rank: int, blind: set[int]) -> bool:
    """Without timing: whether a rank may be in another call than its first ones."""
    return rank in blind or any(waits.absent[meeting] for meeting in waits.in_(rank))


def _blind(flight: Flight) -> set[int]:
    """Ranks whose ring overflowed and holds no call that is complete: those that fell out of it may be under way. The
    status of a group tells of its collectives, where the version of the dump has it, and never of transfers."""
    calls = flight.calls
    transfers = bool(calls.p2p.any())
    seen = set(np.unique(calls.rank[calls.state == COMPLETED]).tolist())
    lost = (dump for dump in flight.dumps if dump.overflowed and (transfers or not dump.status))
    return {dump.rank for dump in lost if dump.rank not in seen}


def chain(waits: Waits, flight: Flight, start: int) -> list[tuple[int, Meeting, int | None]]:
    """From a rank to where its waiting ends: who waits, in which meeting, for whom; None where nobody is missing."""
    steps: list[tuple[int, Meeting, int | None]] = []
    rank, seen = start, set()
    while rank not in seen and waits.running.get(rank):
        seen.add(rank)
        meetings = waits.in_(rank)
        held = [(meeting, other) for meeting in meetings for other in waits.absent[meeting] if other != rank]
        if not held:
            steps.append((rank, meetings[0], None))
            break
        further = [one for one in held if waits.running.get(one[1])] or held
        meeting, rank_next = further[0]
        steps.append((rank, meeting, rank_next))
        rank = rank_next
    return steps


def waiting_in(flight: Flight, waits: Waits, meeting: Meeting) -> list[int]:
    """The members that are in a meeting."""
    return [r for r in members_of(flight, meeting) if meeting in waits.in_(r)]


def _shortest(nodes: set[Node], after: Callable[[Node], Sequence[Node]]) -> list[Node]:
    """The shortest ring through ranks that are in one call each: breadth first, from each of them."""
    best: list[Node] = []
    single = {node for node in nodes if isinstance(node, tuple) or len(after(node)) == 1}
    for start in sorted(node for node in single if isinstance(node, int))[:_MOST_STARTS]:
        by: dict[Node, Node] = {}
        queue: list[Node] = [start]
        for node in queue:
            if start in by:
                break
            for other in after(node):
                if other in single and other not in by:
                    by[other] = node
                    queue.append(other)
        if start not in by:
            continue
        ring: list[Node] = [start]
        while (before := by[ring[-1]]) != start:
            ring.append(before)
        best = ring if not best or len(ring) < len(best) else best
    return best


def _rings(waits: Waits, unseen: set[int], timed: bool) -> list[list[int]]:
    """Ranks that wait for each other, from whom no way leads out but to ranks without a dump: whatever those do, the
    ring stays. Strongly connected, by Tarjan's algorithm. With timing a rank is known to be in its call, which needs
    all its members: the shortest ring stays wherever else ranks on it wait, too.

    Ranks and meetings are both nodes, so that a meeting of thousands costs as many edges, not their product.
    """
    number: dict[Node, int] = {}
    low: dict[Node, int] = {}
    open_: list[Node] = []
    inside: set[Node] = set()
    rings: list[list[Node]] = []

    def after(node: Node) -> Sequence[Node]:
        return waits.absent.get(node, []) if isinstance(node, tuple) else waits.in_(node)

    for root in waits.running:
        work: list[tuple[Node, int]] = [(root, 0)] if root not in number else []
        while work:
            node, at = work.pop()
            if at == 0:
                number[node] = low[node] = len(number)
                open_.append(node)
                inside.add(node)
            others = after(node)
            for n in range(at, len(others)):
                other = others[n]
                if other not in number:
                    work += [(node, n + 1), (other, 0)]
                    break
                if other in inside:
                    low[node] = min(low[node], number[other])
            else:
                if low[node] == number[node]:
                    first = open_.index(node)
                    ring = open_[first:]
                    del open_[first:]
                    inside.difference_update(ring)
                    if len(ring) > 1 and all(o in ring or o in unseen for m in ring for o in after(m)):
                        rings.append(ring)
                    elif len(ring) > 1 and timed and (short := _shortest(set(ring), after)):
                        rings.append(short)
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[node])
    ranks = [sorted(node for node in ring if isinstance(node, int)) for ring in rings]
    return sorted(ranks, key=lambda ring: (len(ring), ring))
