"""How fast hosts launch, and how fast they should: shared by the detectors that must not blame one thing twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import hosts

#: Host time per launch that an eager framework needs where nothing is wrong: the call, and as much again around it.
USUAL_PACE_NS = 6_000
#: ... and the call alone.
USUAL_CALL_NS = 3_500
#: A host whose calls take so many times as long is slow: a profiler may double them.
SLOW_CALL = 3.5
#: A framework that takes so many times as long per launch keeps the GPU waiting if kernels are short ...
SLOW = 1.75
#: ... and this is how many times as fast it is taken to become.
AVOIDABLE = 4 / 3
#: Beside its peers, less is enough to tell that a host is slow.
SLOW_BESIDE_PEERS = 1.4


@dataclass(frozen=True)
class Slow:
    """Ranks that launch slowly, with how many times too slowly."""

    beside: dict[int, float]  # than their peers
    machine: dict[int, float]  # by their calls, than machines usually are
    framework: dict[int, float]  # for what lies between their calls


def slow(case: Case) -> Slow:
    """Which hosts launch slowly; judged once per case."""
    return case.once(_slow)


def _slow(case: Case) -> Slow:
    """A rank that is slower than the median of the others is compared with them.

    All ranks together can only be compared with what is usual: where the launch calls themselves take several times as
    long, the machine is slow, and is taken to be as fast as others; where they do not, the framework is what takes time
    between them, and a quarter of it is taken to be avoidable, no more.
    """
    every = hosts(case)
    paces = {r: p for r, h in every.items() if (p := h.pace_ns) is not None}
    found = Slow({}, {}, {})
    for rank, pace in paces.items():
        others = [p for r, p in paces.items() if r != rank]
        if others and pace > SLOW_BESIDE_PEERS * (usual := float(np.median(others))):
            found.beside[rank] = pace / usual
    if 2 * len(found.beside) > len(paces):  # most of them: then those are the usual ones
        found.beside.clear()
    for rank, pace in paces.items():
        factor = found.beside.get(rank, 1.0)
        call = every[rank].call_ns / factor / USUAL_CALL_NS
        if call >= SLOW_CALL:
            found.machine[rank] = call
        elif pace / factor >= SLOW * USUAL_PACE_NS:
            found.framework[rank] = AVOIDABLE
    return found


def quicker(case: Case, *factors: dict[int, float]) -> Change:
    """Hosts that launch so many times as fast."""
    both = {r: float(np.prod([f.get(r, 1.0) for f in factors])) for r in {r for f in factors for r in f}}
    return Change(host_time_cut={r: hosts(case)[r].quicker(f) for r, f in both.items()})
