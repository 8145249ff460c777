"""Tensors that are turned around in memory: NCHW to NHWC and back for convolutions, copies of permuted views.

What it could save is the step replayed without these kernels, and with batch norms as channels_last lets expect. What a
kernel that reads one layout alone needs is not counted.

What cuDNN turns around for its kernels on tensor cores would not have to be turned if tensors were in channels_last; a
copy of a permuted view is only needed where the next kernel cannot read the view. GroupNorm is such a kernel: it reads
NCHW alone, so that one copy before it and one behind it stay.

Batch norms in NCHW have a block for each channel, and fill the GPU only where channels are many. In channels_last their
statistics read what the kernel that applies them reads and writes: they take no longer than that. The backward pass
moves five tensors where that moves two: 2.5 times as long.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.work.roles import Role
from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import claimed
from stepscope.findings.evidence.sequence import Sequence
from stepscope.findings.evidence.wasted import Told
from stepscope.findings.texts import advice, title
from stepscope.intervals.arrays import F64, I64, NONE, Mask
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "memory-layout"

#: By cuDNN, and by MIOpen.
_TURNED = r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|CNHW2NCHW|NCHW2CNHW|batched_transpose"
#: torch copies what is contiguous by vectors; this kernel takes strides.
_STRIDED = r"(?i)(^|[^_])\belementwise_kernel<.*direct_copy_kernel"
_STATISTICS = r"batch_norm_collect_statistics_kernel"
_APPLIED = r"batch_norm_transform_input_kernel"
_BATCH_BACKWARD = r"batch_norm_backward_kernel"
_GROUP_NORM = r"(?i)RowwiseMoments|group_?norm|ComputeInternalGradients"


def claim(sequence: Sequence, free: Mask) -> F64:
    """What is left of each kernel that only turns tensors around, NaN for others."""
    left = np.full(len(sequence.ops), np.nan)
    name, profile = sequence.data.name[sequence.ops], sequence.data.profile
    turned = free & profile.names_with(_TURNED)[name] & sequence.kinds.are(Role.LAYOUT)
    left[turned] = 0.0
    if turned.any():
        _batch_norms(sequence, left)
    strided = free & profile.names_with(_STRIDED)[name] & sequence.kinds.are(Role.COPY)
    strided &= (sequence.size_class != NONE) & ~sequence.optimizer
    groups = profile.names_with(_GROUP_NORM)[name] & sequence.kinds.are(Role.NORM)
    at = np.flatnonzero(strided & ~_needed(sequence.stretch, strided, groups))
    left[at[_several(sequence, at)]] = 0.0
    return left


def _batch_norms(sequence: Sequence, left: F64) -> None:
    """Each at the time that its own kernel for applying it lets expect."""
    name, profile = sequence.data.name[sequence.ops], sequence.data.profile
    statistics, applied, back = (
        np.flatnonzero(profile.names_with(pattern)[name]) for pattern in (_STATISTICS, _APPLIED, _BATCH_BACKWARD)
    )
    ns = np.maximum(sequence.ns, 1)
    if len(applied) == len(statistics):
        left[statistics] = np.minimum(ns[applied] / ns[statistics], 1.0)
    if len(applied) == len(back):  # layers come back in reverse
        left[back] = np.minimum(2.5 * ns[applied[::-1]] / ns[back], 1.0)


def _needed(stretch: I64, strided: Mask, norms: Mask) -> Mask:
    """Of each stretch with a norm that reads one layout alone: the copy before it and the one behind it."""
    needed = np.zeros(len(stretch), dtype=bool)
    copies = np.flatnonzero(strided)
    if not len(copies):
        return needed
    for side in (-1, 0):
        place = np.searchsorted(copies, np.flatnonzero(norms)) + side
        inside = (place >= 0) & (place < len(copies))
        beside = copies[place[inside]]
        needed[beside[stretch[beside] == stretch[np.flatnonzero(norms)[inside]]]] = True
    return needed


def _several(sequence: Sequence, at: I64) -> Mask:
    """Two and more in a stretch: one may bring a tensor into the layout that a product asks for."""
    if not len(at):
        return np.zeros(0, dtype=bool)
    _, group, count = np.unique(sequence.stretch[at], return_inverse=True, return_counts=True)
    several: Mask = count[group] > 1
    return several


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    return (
        title(
            "memory-layout", kernels=several(lost.kernels, "kernel only changes", "kernels only change"), rank=lost.rank
        ),
        f"they, and batch norms that NCHW slows down, take {about(lost.took_ns)} of the step on "
        f"rank {lost.rank}, {lost.most}; with one layout throughout, "
        + (f"about {about(lost.good_ns)} of it stay" if lost.good_ns else "none of it is needed"),
        advice("memory-layout"),
    )


remedy, detect = claimed(ID, _worded)
