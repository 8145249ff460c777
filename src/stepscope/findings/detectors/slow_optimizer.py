"""The optimizer's step in many kernels, where a fused one passes over parameters and states once.

What it could save is the step replayed with them as one fused step, at the rate measured for it
(`evidence/optimizer_step.py`). What launching them costs a host that is behind is `tiny-kernels`' to say.
"""

from __future__ import annotations

from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import claimed
from stepscope.findings.evidence.wasted import Told
from stepscope.findings.texts import advice, title
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "slow-optimizer"


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    return (
        title("slow-optimizer", kernels=several(lost.kernels, "kernel"), rank=lost.rank),
        f"they take {about(lost.took_ns)} of the step on rank {lost.rank}, {lost.most}; a fused step, which reads and "
        f"writes each number once, takes about {about(lost.good_ns)}",
        advice("slow-optimizer"),
    )


remedy, detect = claimed(ID, _worded)
