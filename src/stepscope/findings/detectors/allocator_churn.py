"""Memory is taken from and given back to the driver inside the step: cudaMalloc, cudaFree, empty_cache.

cudaMalloc keeps the host from launching; cudaFree makes it wait for the whole device. A caching allocator does neither
once it is warm. What it could give back is the step replayed with those calls neither taking time nor waiting.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.host.idle_causes import ALLOC
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, guilty, hosts, stage_of, sure
from stepscope.findings.evidence.machines import on_amd
from stepscope.findings.evidence.places import longest
from stepscope.findings.evidence.shown import LATE, lost_by
from stepscope.findings.finding import Finding
from stepscope.findings.words import counted
from stepscope.intervals import Spans, union
from stepscope.intervals.arrays import I64
from stepscope.model.units import about

ID = "allocator-churn"


def _allocations(case: Case) -> dict[int, tuple[Host, I64]]:
    """By rank: the calls; nothing where they cannot matter."""
    allocations = {r: (h, calls) for r, h in hosts(case).items() if len(calls := h.of_cause(ALLOC))}
    longest_ns = max((h.length(calls) for h, calls in allocations.values()), default=0)
    return allocations if case.material(longest_ns) else {}


def remedy(case: Case) -> Change:
    """No such calls, and nothing of what the allocator does between two of them."""
    allocations = case.once(_allocations)
    return Change(
        calls_not_waiting={r: calls for r, (_, calls) in allocations.items()},
        host_time_cut={r: _between(h, calls) for r, (h, calls) in allocations.items()},
    )


def _between(host: Host, calls: I64) -> Spans:
    """Host time from one such call to the next of its thread, where no other call comes between them."""
    order = np.lexsort((calls, host.tid[calls]))
    rows = calls[order]
    adjoining = (np.diff(rows) == 1) & (np.diff(host.tid[rows]) == 0)
    return union(host.stop[rows[:-1][adjoining]], host.start[rows[1:][adjoining]])


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
            f"memory is allocated and freed in the step ({counted(names)} on rank {worst})",
            saved,
            sure(case),
            f"the host of rank {worst} spends {about(spent[worst])} of the step in these calls, and a "
            f"{'hip' if on_amd(case, ranks) else 'cuda'}Free leaves the GPU empty behind it: it is idle for {idle}"
            if freed
            else f"the host of rank {worst} spends {about(spent[worst])} of the step in these calls; the GPU is idle "
            f"for {idle} because of them",
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
        return "allocate pinned buffers once and reuse them (a pinned loader does), not in every step"
    return (
        "keep memory in the caching allocator: no torch.cuda.empty_cache() in the loop, no shapes that change in every "
        f"step, PYTORCH_{'HIP' if amd else 'CUDA'}_ALLOC_CONF=expandable_segments:True where memory is nearly full"
    )
