"""The backward pass computes again what the forward pass computed: activation checkpointing.

That is a choice: it spends time to save memory. What it could give back is the step replayed without the recomputed
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
from stepscope.model.gpus import gpu_of
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "recomputation"


def _again(case: Case) -> dict[int, Waste]:
    """By rank: what ran before."""
    found = {r: np.sort(s.ops[s.again]) for r, s in sequences(case).items()}
    return {r: Waste(ops, np.zeros(len(ops))) for r, ops in found.items() if len(ops)}


def remedy(case: Case) -> Change:
    """Nothing is computed twice."""
    return change(case, case.once(_again))


def detect(case: Case) -> list[Finding]:
    return wasted(case, ID, case.once(_again), lambda told: _said(case, told))


def _said(case: Case, told: Told) -> tuple[str, str, str]:
    return (
        f"{several(told.kernels, 'kernel of the forward pass runs', 'kernels of the forward pass run')} again in the "
        f"backward pass (on rank {told.rank})",
        f"they take {about(told.took_ns)} of the step on rank {told.rank}, {told.most}: the same kernels with the same "
        f"grids ran in the forward pass before{_memory(case, told.rank)}",
        "checkpoint fewer layers, or only cheap ops (selective checkpointing: "
        "torch.utils.checkpoint.create_selective_checkpoint_contexts, torch 2.4), as far as memory allows; "
        "transformers: gradient_checkpointing=False",
    )


def _memory(case: Case, rank: int) -> str:
    """Whether there is room for what would be kept instead."""
    gpu = gpu_of(gpu_name(case, rank))
    peaks = [int(h.reserved.max()) for h in histories(case.profile) if h.rank == rank and len(h.reserved)]
    if not case.profile.has("allocations") or not peaks or gpu is None:
        return "; whether memory allows less of it, `--with memory` or a snapshot of the allocator would say"
    peak, room = max(peaks) / 1e9, gpu.gb - max(peaks) / 1e9
    return f"; {peak:.0f} GB of {gpu.gb:g} are reserved at most, {max(room, 0.0):.0f} GB are left"
