"""The backward pass computes again what the forward pass computed: activation checkpointing.

That is a choice: it spends time to save memory. What it could save is the step replayed without the recomputed
kernels and their launches (`derive/work/phases.py` says which they are). Where the memory's peak is known, the
finding says whether there is room for fewer checkpoints.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.memory.history import histories
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.machines import gpu_name
from stepscope.findings.evidence.sequence import sequences
from stepscope.findings.evidence.wasted import Told, Waste, change, wasted
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.model.gpus import gpu_of
from stepscope.model.statement import several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

ROOM = Threshold(
    20.0,
    "% of the GPU's memory",
    "the allocator's reserve varies by some per cent from step to step; less than this may be lost to fragments",
    ("tests/findings/test_recomputation.py",),
)


ID = "recomputation"


def _again(case: Case) -> dict[int, Waste]:
    """By rank: what ran before."""
    repeated = {r: np.sort(s.ops[s.again]) for r, s in sequences(case).items()}
    return {r: Waste(ops, np.zeros(len(ops))) for r, ops in repeated.items() if len(ops)}


def remedy(case: Case) -> Change:
    """Nothing is computed twice."""
    return change(case, case.once(_again))


def detect(case: Case) -> list[Finding]:
    return wasted(case, ID, case.once(_again), lambda told: _said(case, told))


def _said(case: Case, lost: Told) -> tuple[str, str, str]:
    return (
        title(
            "recomputation",
            kernels=several(lost.kernels, "kernel of the forward pass runs", "kernels of the forward pass run"),
            rank=lost.rank,
        ),
        f"they take {about(lost.took_ns)} of the step on rank {lost.rank}, {lost.most}: the same kernels with the same "
        f"grids ran in the forward pass before{_memory(case, lost.rank)}",
        advice("recomputation"),
    )


def _memory(case: Case, rank: int) -> str:
    """Whether there is room for what would be kept instead: by the manifest, or by the allocator's history."""
    gpu = gpu_of(gpu_name(case, rank))
    facts = case.profile.program_facts(rank).get("memory", {})
    peak, all_of_it = facts.get("reserved_bytes"), facts.get("total_bytes") or (gpu and gpu.gb * 1e9)
    if peak is None and case.profile.has("allocations"):
        peaks = [int(h.reserved.max()) for h in histories(case.profile) if h.rank == rank and len(h.reserved)]
        peak = max(peaks, default=None)
    if not peak or not all_of_it:
        return (
            "; a manifest of `capture run`, `--with memory` or a snapshot of the allocator would say "
            "whether memory allows less of it"
        )
    room = max(all_of_it - peak, 0.0)
    verdict = "so there is room to keep more" if room > ROOM.share * all_of_it else "so there is little room for more"
    return f"; {peak / 1e9:.3g} GB of {all_of_it / 1e9:.4g} are reserved at the peak, {verdict}"
