"""The optimizer's step in many kernels, where a fused one passes over parameters and states once.

What it could save is the step replayed with them as one fused step, at the rate measured for it. What launching them
costs a host that is behind is `tiny-kernels`' to say.

A fused step of Adam reads a parameter, its gradient and two states, and writes all but the gradient: seven numbers of
each parameter, at the rate measured for torch's fused kernel (`derive/work/reference.py`). Loops over tensors and lists
of them (foreach) read and write most of these several times. Clipping is not a part of it: a fused step needs it, too.
How many parameters there are is told by the kernel that each of them passes once.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.work.reference import bandwidth, share_of_bandwidth
from stepscope.derive.work.roles import Role
from stepscope.derive.work.sizes import gpu
from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import claimed
from stepscope.findings.evidence.sequence import Sequence
from stepscope.findings.evidence.wasted import Told
from stepscope.findings.texts import advice, title
from stepscope.intervals.arrays import F64, I64, Mask
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "slow-optimizer"

_FUSED = r"(?i)Fused\w*MathFunctor|fused_?adam|multi_tensor_(adam|sgd|lamb)|AdamFunctor|AdamCapturable"
_ONCE = r"(?i)addcdiv"
#: Clipping: norms of gradients, and their product with a number that is on the GPU.
_CLIPPING = r"(?i)LpNorm|l2norm|norm_kernel|BinaryOpScalarTensorFunctor.*multiplies"


def claim(sequence: Sequence, free: Mask) -> F64:
    """What is left of each kernel of a step that is not fused, NaN for others."""
    left = np.full(len(sequence.ops), np.nan)
    name, profile = sequence.data.name[sequence.ops], sequence.data.profile
    apart = profile.names_with(_FUSED)[name] | profile.names_with(_CLIPPING)[name]
    stepping = sequence.kinds.are(Role.ELEMENTWISE, Role.OPTIMIZER, Role.REDUCTION, Role.CAST)
    at = np.flatnonzero(free & sequence.optimizer & stepping & ~apart)
    device = gpu(sequence.data)
    share = share_of_bandwidth("adamw fused")
    if not len(at) or device is None or share is None:
        return left
    good = _bytes(sequence, at) / (share * bandwidth(device).value)
    took = float(sequence.ns[at].sum())
    sized = float(sequence.ns[at[~np.isnan(sequence.sizes.elements[at])]].sum())
    if good and 2 * sized > took:  # else too few kernels say how many parameters there are
        left[at] = min(1.0, good / max(took, 1.0))
    return left


def _bytes(sequence: Sequence, at: I64) -> float:
    """What one pass moves: seven numbers of each parameter with two states, five with one."""
    name = sequence.data.name[sequence.ops[at]]
    elements = np.nan_to_num(sequence.sizes.elements[at])
    once = sequence.data.profile.names_with(_ONCE)[name]
    ids, where = np.unique(name, return_inverse=True)
    totals = np.bincount(where, weights=elements, minlength=len(ids))
    if not totals.max():
        return 0.0
    parameters = float(elements[once].sum()) if once.any() else float(np.median(totals[totals > totals.max() / 10]))
    return parameters * 4.0 * (7 if once.any() else 5)


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    return (
        title("slow-optimizer", kernels=several(lost.kernels, "kernel"), rank=lost.rank),
        f"they take {about(lost.took_ns)} of the step on rank {lost.rank}, {lost.most}; a fused step, which reads and "
        f"writes each number once, takes about {about(lost.good_ns)}",
        advice("slow-optimizer"),
    )


remedy, detect = claimed(ID, _worded)
