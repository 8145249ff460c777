"""The host cannot launch fast enough: each launch takes it longer than it should, and the GPU waits.

How long a launch takes is measured from the return of one launch to the return of the next, where nothing held the host
up. A rank is compared with its peers, and replayed at their pace. All of them together are compared with what is usual:
where the calls themselves are slow, the step is replayed with calls of usual length; where the framework takes its time
between them, with launches at the pace of the hardware: that is what CUDA graphs give, and the most that anything can.
"""

from __future__ import annotations

from stepscope.derive.host.idle_causes import QUEUE
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import hosts, stage_of
from stepscope.findings.evidence.last import Last, last_rank
from stepscope.findings.evidence.launching import USUAL_CALL, quicker, slow_hosts, unfed, unfed_ns, usual
from stepscope.findings.evidence.places import longest
from stepscope.findings.evidence.shown import LATE, waiting
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.findings.thresholds import SHOWN
from stepscope.intervals import Spans, intersect, union
from stepscope.model.ranks import some_ranks
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

HARDWARE_PACE = Threshold(
    2.5,
    "µs",
    "from launch to launch in a loop of C++ without a profiler; kernels of a CUDA graph follow each other faster",
    ("tests/data/promises",),
)


ID = "launch-bound"


def remedy(case: Case) -> Change:
    """Every slow machine as fast as it should be. What a framework takes between calls is not in it."""
    return quicker(case, slow_hosts(case).beside, slow_hosts(case).machine)


def detect(case: Case) -> list[Finding]:
    which = slow_hosts(case)
    findings = []
    saved = 0
    if which.beside:
        saved = case.credit(ID, quicker(case, which.beside), unfed_ns(case, which.beside))
        findings.append(_of_some(case, which.beside, saved))
    if which.machine:
        findings.append(
            _of_all(case, which.machine, max(case.credit(ID, at_most=unfed_ns(case, case.ranks)) - saved, 0))
        )
    if which.framework:
        factors = {r: (hosts(case)[r].pace_ns or 0.0) / HARDWARE_PACE.ns for r in which.framework}
        change = quicker(case, factors)
        after = case.credit(ID, change, unfed_ns(case, which.framework), kind="framework")
        # Where other findings shorten the GPU's work, the host would hold it up more than it does today.
        today = after <= max(_starved(case, r) for r in which.framework)
        saved = after if today else min(after, case.replay.saved(change))
        findings.append(_of_all(case, which.framework, saved, after))
    return findings


def _of_some(case: Case, factors: dict[int, float], saved: int) -> Finding:
    ranks = tuple(sorted(factors))
    worst = max(ranks, key=lambda r: (factors[r], -r))
    pace = hosts(case)[worst].pace_ns or 0.0
    late, figures = _late(case, worst, saved)
    return Finding(
        ID,
        title("launch-bound/of-some", ranks=some_ranks(ranks), factors=factors[worst]),
        saved,
        "likely",
        f"rank {worst} takes {about(pace)} of host time per launch, its peers {about(pace / factors[worst])}; its GPU "
        f"{late}",
        advice("launch-bound/of-some"),
        ("launches", "--by rank"),
        ranks=ranks,
        figures=figures,
        stage=stage_of(case, ranks),
        where=longest(p for r in ranks for p in hosts(case)[r].longest_idle("host", "api")),
        covers=_late_launches(case, ranks),
    )


def _of_all(case: Case, factors: dict[int, float], saved: int, after: int = 0) -> Finding:
    """Of all hosts together. `after`: what it gives back once the causes that come before it are gone."""
    ranks = tuple(sorted(factors))
    worst = max(ranks, key=lambda r: (_starved(case, r), -r))
    host = hosts(case)[worst]
    late, figures = _late(case, worst, saved)
    if worst in slow_hosts(case).machine:
        should = usual(case)
        other = (
            f"the {about(should.call_ns)} of this job's fastest launches"
            if should.measured
            else f"the usual {USUAL_CALL}"
        )
        took = f"its call {factors[worst]:.1f} times {other}"
        machine = "check the CPU: frequency governor, other processes, pinning to the GPU's NUMA node, debug settings; "
    else:
        took = f"{about(host.call_ns)} of it in the call; the estimate assumes {HARDWARE_PACE} is achievable"
        machine = ""
    last = _last(case)
    return Finding(
        ID,
        f"rank {last.rank} launches the slowest, and comes last in {last.times} of {last.total} communications"
        if last is not None and last.rank in ranks
        else title("launch-bound/of-all"),
        saved,
        "likely",
        f"each launch costs {about(host.pace_ns or 0.0)} of host time on rank {worst}, {took}; the GPU "
        f"{late}{_then(case, saved, after)}",
        advice("launch-bound/of-all", machine=machine),
        ("launches", "--by rank"),
        ranks=ranks,
        figures=figures,
        stage=stage_of(case, ranks),
        where=longest(p for r in ranks for p in hosts(case)[r].longest_idle("host", "api")),
        covers=_late_launches(case, ranks),
        bound=worst in slow_hosts(case).framework,
    )


def _then(case: Case, saved: int, after: int) -> str:
    """What it grows to where other findings shorten the GPU's work."""
    if not case.material(after - saved, SHOWN):
        return ""
    return f". Once other findings are mended, it is worth {about(after)}"


def _late(case: Case, rank: int, claim: int) -> tuple[str, tuple[int, ...]]:
    """How long the GPU starves, as `launches` has it; where more is claimed, ranks also wait for each other."""
    starved = hosts(case)[rank].idle_ns(*LATE)
    late = min(_starved(case, rank), starved)
    text = f"idles for {about(starved)} of the step because launches come late"
    if about(late) != about(starved):
        text = f"starves for {about(starved)} of the step, {about(late)} of it because launches come late"
    figures: tuple[int, ...] = (starved,)
    if claim > starved and (queued := hosts(case)[rank].idle_ns("queue")):
        arriving = _arriving_ns(case, rank)
        text += f"; another {about(queued)} passes between launches and starts, {about(arriving)} of it because "
        text += "launches take that long to arrive"
        figures = (starved, queued)
    if claim <= sum(figures) or not (waited := waiting(case))[1]:
        return text, figures
    return f"{text}; {waited[0]}", (*figures, waited[1])


def _arriving_ns(case: Case, rank: int) -> int:
    """Time between launches and starts that passes because launches take that long to arrive."""
    idle = hosts(case)[rank].idle
    queued = idle.cause == QUEUE
    return intersect(unfed(case, rank), union(idle.start[queued], idle.end[queued])).length()


def _last(case: Case) -> Last | None:
    """The rank that comes last nearly always, where its host is the slowest."""
    last = last_rank(case) if len(case.ranks) > 1 else None
    slowest = max(case.ranks, key=lambda r: _starved(case, r) if r in hosts(case) else 0.0)
    return last if last is not None and last.rank == slowest else None


def _late_launches(case: Case, ranks: tuple[int, ...]) -> dict[int, Spans]:
    """Gaps of the GPU in which the host was launching, as far as its queue was empty."""
    late_launches = {}
    for rank in ranks:
        launching = hosts(case)[rank].quicker(float("inf"))
        gaps = hosts(case)[rank].gaps_touched(launching.start, launching.end)
        late_launches[rank] = intersect(gaps, unfed(case, rank))
    return late_launches


def _starved(case: Case, rank: int) -> float:
    """Time of the step that the GPU waits for launches, each a little late."""
    host = hosts(case)[rank]
    return host.idle_in(host.quicker(float("inf")))
