"""A loss over a large vocabulary that moves the logits more often than `F.cross_entropy` does.

What it could save is the step replayed with the loss as that call makes it: no copies of the logits, no softmax or
label smoothing written out. A loss in chunks, fused with the last product, needs less again.

It is what lies between the last product of the forward pass and the first of the backward. There the logits are the
largest tensor of the step, and every kernel that reads and writes them counts. Compared with `F.cross_entropy`: where
the loss calls it (log-softmax and its kin are there), its own kernels and the casts around them stay as they are, and
of all else only what it needs, too: a gradient that is filled, and with label smoothing a sum and its gradient. A
softmax alone is a loss written out: then with all that the call would move, by its kernels.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.work.phases import FORWARD
from stepscope.derive.work.reference import bandwidth
from stepscope.derive.work.roles import Role
from stepscope.derive.work.sizes import gpu
from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import claimed
from stepscope.findings.evidence.sequence import SAME_SIZE, Sequence
from stepscope.findings.evidence.wasted import Told
from stepscope.findings.texts import advice, title
from stepscope.intervals.arrays import F64, I64, Mask, one_of
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "slow-loss"


def claim(sequence: Sequence, free: Mask) -> F64:
    """What is left of each kernel of the loss, NaN for others."""
    left = np.full(len(sequence.ops), np.nan)
    if gpu(sequence.data) is None:
        return left
    of_loss = sequence.kinds.are(Role.LOSS, Role.SOFTMAX)
    for first, last in _turns(sequence):
        inside = np.arange(first + 1, last)
        inside = inside[free[inside] & ~sequence.optimizer[inside]]
        if of_loss[inside].any():
            _mark(sequence, inside, left)
    return left


def _turns(sequence: Sequence) -> list[tuple[int, int]]:
    """Landmarks between which the forward pass turns into the backward pass."""
    landmarks = np.flatnonzero(sequence.heavy)
    phase = sequence.phase[landmarks]
    turn = np.flatnonzero((phase[:-1] == FORWARD) & sequence.back[landmarks[1:]])
    return list(zip(landmarks[turn].tolist(), landmarks[turn + 1].tolist(), strict=True))


def _mark(sequence: Sequence, inside: I64, left: F64) -> None:
    elements, ns = sequence.elements[inside], sequence.ns[inside]
    if np.isnan(elements).all():
        return
    largest = float(np.nanmax(elements))
    role = sequence.role[inside]
    own = one_of(role, (Role.LOSS, Role.SOFTMAX))
    near = np.abs(elements / largest - 1) < SAME_SIZE.share
    logits = largest * _split(sequence, inside[near])
    called = bool((role == Role.LOSS).any())
    kept = own | (role == Role.CAST) if called else np.zeros(len(inside), dtype=bool)
    other = (near | own) & ~kept
    took = float(ns[other].sum())
    left[inside[(near | own) & kept]] = 1.0
    if took:
        left[inside[other]] = min(1.0, _needs_ns(sequence, inside[near], logits, called=called) / took)


def _split(sequence: Sequence, near: I64) -> int:
    """Into how many launches kernels take the logits: an index of 32 bits does not reach further."""
    name = sequence.data.name[sequence.ops[near]]
    edges = np.flatnonzero(np.r_[True, name[1:] != name[:-1], True])
    lengths = np.diff(edges)
    return 2 if len(lengths) and float(np.median(lengths)) >= 2 else 1


def _needs_ns(sequence: Sequence, near: I64, logits: float, *, called: bool) -> float:
    """What `F.cross_entropy` moves, beside what is kept as it is."""
    forward = near[~sequence.back[near]]
    smoothed = bool((sequence.role[forward] == Role.REDUCTION).any())
    narrow = bool((sequence.role[near] == Role.CAST).any())  # logits in half precision, cast to float here
    filled, summed, added = 4, 4, 12
    per_logit = filled + (summed + added) * smoothed
    if not called and narrow:  # in half precision: log-softmax, a cast for the sum, and the way back
        per_logit = (4 + 6) + (filled + 6 + 6) + (2 + 6 + 6) * smoothed
    elif not called:
        per_logit += 8 + 12
    device = gpu(sequence.data)
    assert device is not None
    return per_logit * logits / bandwidth(device).value


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    return (
        title("slow-loss", kernels=several(lost.kernels, "kernel"), rank=lost.rank),
        f"apart from log-softmax and casts, they take {about(lost.took_ns)} of the step on rank {lost.rank}, "
        f"{lost.most}; F.cross_entropy would need about {about(lost.good_ns)} of that",
        advice("slow-loss"),
    )


remedy, detect = claimed(ID, _worded)
