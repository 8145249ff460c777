"""The host cannot launch fast enough: each launch takes it longer than it should, and the GPU waits.

How long a launch takes is measured from the return of one launch to the return of the next, where nothing held the host
up. A rank is compared with its peers; all of them together, with what an eager framework usually needs. What it could
give back is the step replayed with a host that launches at that pace.
"""

from __future__ import annotations

from stepscope.analyses._change import Change
from stepscope.analyses._members import ranks_text
from stepscope.findings.case import Case
from stepscope.findings.finding import Finding
from stepscope.findings.hosts import SLOW, USUAL_PACE_NS, hosts, longest, slow_hosts, stage_of
from stepscope.findings.words import ms, us

ID = "launch-bound"


def detect(case: Case) -> list[Finding]:
    beside, alike = slow_hosts(case)
    found = []
    saved = 0
    if beside:
        saved = case.saved(_quicker(case, beside))
        found.append(_of_some(case, beside, saved))
    if alike:
        found.append(_of_all(case, alike, max(case.saved(quick(case)) - saved, 0)))
    return found


def _of_some(case: Case, factors: dict[int, float], saved: int) -> Finding:
    ranks = tuple(sorted(factors))
    every = hosts(case)
    worst = max(ranks, key=lambda r: (factors[r], -r))
    mine = every[worst].pace_ns or 0.0
    return Finding(
        ID,
        f"the host of rank {ranks_text(ranks)} launches {factors[worst]:.1f} times as slowly as its peers'",
        saved,
        "high",
        f"rank {worst} takes {us(mine)} of host time per launch, its peers {us(mine / factors[worst])}; its GPU has "
        f"nothing to do for {ms(_starved(case, worst))} of the step because launches come late",
        "look at that machine's CPU: other processes, pinning (NUMA node of the GPU), frequency governor, debug "
        "settings (CUDA_LAUNCH_BLOCKING, a tracer) on this rank alone",
        ("launches", f"--rank {worst}"),
        ranks=ranks,
        stage=stage_of(case, ranks),
        where=longest(p for r in ranks for p in every[r].longest_idle("host", "api")),
    )


def _of_all(case: Case, factors: dict[int, float], saved: int) -> Finding:
    ranks = tuple(sorted(factors))
    every = hosts(case)
    worst = max(ranks, key=lambda r: (_starved(case, r), -r))
    return Finding(
        ID,
        "the host cannot launch fast enough",
        saved,
        "medium",
        f"a launch takes {us(every[worst].pace_ns or 0.0)} of host time on rank {worst}, more than {SLOW:g} times the "
        f"usual {us(USUAL_PACE_NS)}; the GPU has nothing to do for {ms(_starved(case, worst))} of the step because "
        "launches come late",
        "launch less: CUDA graphs or torch.compile(mode='reduce-overhead'), fused optimizers (fused=True), larger "
        "micro-batches; then make Python cheaper between launches, and check that the profiler itself (stacks, shapes) "
        "is not what slows it",
        ("launches", "--by rank"),
        ranks=ranks,
        stage=stage_of(case, ranks),
        where=longest(p for r in ranks for p in every[r].longest_idle("host", "api")),
    )


def quick(case: Case) -> Change:
    """Every slow host as fast as it should be; nothing where none is slow."""
    beside, alike = slow_hosts(case)
    return _quicker(case, {r: beside.get(r, 1.0) * alike.get(r, 1.0) for r in {*beside, *alike}})


def _quicker(case: Case, factors: dict[int, float]) -> Change:
    return Change(cut={r: hosts(case)[r].quicker(f) for r, f in factors.items()})


def _starved(case: Case, rank: int) -> float:
    """Time of the step that the GPU waits for launches, each a little late."""
    host = hosts(case)[rank]
    return host.idle_in(host.quicker(float("inf"))) / case.steps
