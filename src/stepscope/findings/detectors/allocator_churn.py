"""Memory is taken from and given back to the driver inside the step: cudaMalloc, cudaFree, empty_cache.

cudaMalloc keeps the host from launching; cudaFree makes it wait for the whole device. A caching allocator does neither
once it is warm. What it could save is the step replayed with those calls neither taking time nor waiting, nor what
the allocator does around them: between two launches with such a call the host takes longer than between others.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.host.idle_causes import ALLOC
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import LONGEST_LAUNCH, Host, guilty, hosts, stage_of, sure
from stepscope.findings.evidence.machines import on_amd
from stepscope.findings.evidence.once import once
from stepscope.findings.evidence.places import longest
from stepscope.findings.evidence.shown import LATE, lost_by
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.intervals import Spans, covered, join, union
from stepscope.intervals.arrays import I64, NONE, in_order
from stepscope.model.statement import counted
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

TAKEN_AGAIN = Threshold(
    3,
    "allocations",
    "in a capture without steps: a program that asks for memory once or twice after its first kernel does not churn",
    ("tests/findings/test_guards.py",),
)
SLOW_AROUND = Threshold(
    1.5,
    "times the pace",
    "between launches with a cudaMalloc the host takes 2.1 to 2.2 times as long, the call not counted",
    ("h200/hf/hf1_emptycache.sqlite", "h200/hf/hf1_emptycache.rank0.pt.trace.json.gz"),
)


ID = "allocator-churn"


def _allocations(case: Case) -> dict[int, tuple[Host, I64]]:
    """By rank: the calls; nothing where they cannot matter."""
    allocations = {r: (h, calls) for r, h in hosts(case).items() if len(calls := h.of_cause(ALLOC))}
    if case.kind == "capture":  # of a short program: what is taken once, and given back when it ends, does not recur
        allocations = {
            r: (h, again) for r, (h, calls) in allocations.items() if len(again := _recurring(case, h, calls))
        }
        allocations = {r: (h, calls) for r, (h, calls) in allocations.items() if _taken(h, calls) >= TAKEN_AGAIN.value}
    longest_ns = max((h.length(calls) for h, calls in allocations.values()), default=0)
    return allocations if case.material(longest_ns) else {}


def _recurring(case: Case, host: Host, calls: I64) -> I64:
    """Without those before the first kernels of a kind, when libraries are loaded and algorithms tried.

    Of these, those that take no longer than the others are one of them: a capture may begin with a step like all.
    """
    spans, took = case.once(once)[host.data.rank], host.stop[calls] - host.start[calls]
    later = covered(host.start[calls], host.stop[calls], spans) == 0
    again: I64 = calls[later | (took <= took[later].max(initial=0))]
    return again


def _taken(host: Host, calls: I64) -> int:
    """How often memory is asked for; giving it back is not counted."""
    return sum(n for name, n in host.names(calls).items() if "alloc" in name.lower())


def remedy(case: Case) -> Change:
    """No such calls, and nothing of what the allocator does around them."""
    allocations = case.once(_allocations)
    return Change(
        calls_not_waiting={r: calls for r, (_, calls) in allocations.items()},
        host_time_cut={r: join(_between(h, calls), _around(h, calls)) for r, (h, calls) in allocations.items()},
    )


def _between(host: Host, calls: I64) -> Spans:
    """Host time from one such call to the next of its thread, where no other call comes between them."""
    order = in_order(host.tid[calls], calls)
    rows = calls[order]
    adjoining = (np.diff(rows) == 1) & (np.diff(host.tid[rows]) == 0)
    return union(host.stop[rows[:-1][adjoining]], host.start[rows[1:][adjoining]])


def _around(host: Host, calls: I64) -> Spans:
    """Host time between two launches with such calls among them, beyond the calls and the usual pace.

    Only where most of these stretches are longer than usual: else what is beyond it is the program's.
    """
    pace = host.pace_ns
    spans = [_stretches(host, calls[host.tid[calls] == thread]) for thread in np.unique(host.tid[calls]).tolist()]
    before, first, own = (np.concatenate(column) for column in zip(*spans, strict=True))
    if pace is None or not len(own) or np.median(own) < SLOW_AROUND.value * pace:
        return Spans.empty()
    beyond = np.where(own <= LONGEST_LAUNCH.value * pace, np.maximum(own - round(pace), 0), 0)
    return union(before, np.minimum(before + beyond, first))


def _stretches(host: Host, calls: I64) -> tuple[I64, I64, I64]:
    """Of one thread, stretches from a launch to the next with such calls among them.

    When the launch before returned, when the first such call began, and host time but for these calls.
    """
    launches = np.flatnonzero(np.bincount(host.data.launch[host.data.launch != NONE]))
    launches = launches[host.tid[launches] == host.tid[calls[0]]]
    after = np.searchsorted(launches, calls)  # rows of calls are in the order of time
    inside = (after > 0) & (after < len(launches))
    after, calls = after[inside], calls[inside]
    if not len(calls):
        return calls, calls, calls
    which, at = np.unique(after, return_index=True)
    took = np.add.reduceat(host.stop[calls] - host.start[calls], at)
    before = host.stop[launches[which - 1]]
    return before, np.maximum(host.start[calls[at]], before), host.stop[launches[which]] - before - took


def detect(case: Case) -> list[Finding]:
    allocations = case.once(_allocations)
    if not allocations:
        return []
    spent = {r: h.length(calls) for r, (h, calls) in allocations.items()}
    ranks = guilty(spent)
    worst = max(ranks, key=lambda r: (spent[r], -r))
    host, calls = allocations[worst]
    names = host.names(calls)
    freed = any("Free" in n for n in names)
    saved = case.credit(ID)
    causes = ("alloc", *LATE) if freed else ("alloc",)
    idle, figures, command = lost_by(case, host, *causes, claim=saved)
    return [
        Finding(
            ID,
            title("allocator-churn", counted=counted(names), worst=worst),
            saved,
            sure(case),
            f"the host of rank {worst} spends {about(spent[worst])} of the step in these calls, and a "
            f"{'hip' if on_amd(case, ranks) else 'cuda'}Free drains the GPU: it idles for {idle}"
            if freed
            else f"the host of rank {worst} spends {about(spent[worst])} of the step in these calls; the GPU "
            f"idles for {idle}",
            _advice(names, on_amd(case, ranks)),
            command,
            ranks=ranks,
            figures=figures,
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in allocations[r][0].longest(allocations[r][1])),
            covers={r: h.gaps_of(calls) for r, (h, calls) in allocations.items()},
        )
    ]


def _advice(names: dict[str, int], amd: bool) -> str:
    if any("Host" in n for n in names):
        return advice("allocator-churn/host")
    return advice("allocator-churn/device", api="HIP" if amd else "CUDA")
