"""Casts that return to where they began, clones, and gradients that are set to zero: bytes that nobody needs.

What it could save is the step replayed without them. The one cast that autocast makes before a product is not counted,
nor a copy into another layout.

Looked at are casts and copies of one size that come one behind the other, with nothing that computes between them. Of
casts that return to where they began none is needed, of others one; of copies none. Tensors that are filled with zeros
by list (`zero_grad(set_to_none=False)`) need not be, and gradients then are written where they would have been added:
sums in the backward pass of the size of a weight, which is cast in the forward pass and passes no other kernel there.
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

ID = "casts-and-copies"

_ZEROS = r"multi_tensor_apply.*ZeroFunctor"
_SUM = r"CUDAFunctor_add"
#: What a cast gives, by name: the narrowest first.
_GIVES = (r"(?i)bfloat16_copy|half_copy|float16_copy|to_half", r"(?i)direct_copy_kernel.*\(float\)", r"\(double\)")


def claim(sequence: Sequence, free: Mask) -> F64:
    """What is left of each needless cast or copy, NaN for others."""
    left = np.full(len(sequence.ops), np.nan)
    names = sequence.data.profile
    zeros = names.names_with(_ZEROS)[sequence.data.name[sequence.ops]]
    left[free & zeros] = 0.0
    if zeros.any():
        left[free & _accumulated(sequence)] = 0.0
    known = (sequence.size_class != NONE) & ~sequence.kinds.are(Role.FILL)
    at = np.flatnonzero(known)
    if not len(at):
        return left
    # Per size, in order: a run is broken by anything that computes.
    moves = sequence.kinds.are(Role.CAST, Role.COPY)
    part = np.cumsum(sequence.heavy | (known & ~moves)) + sequence.segment
    order = at[np.lexsort((at, sequence.size_class[at], part[at]))]
    moving = (free & moves)[order]
    alike = (np.diff(sequence.size_class[order]) == 0) & (np.diff(part[order]) == 0)
    same = np.r_[False, alike & moving[1:] & moving[:-1]]
    run = np.cumsum(~same)
    _drop(sequence, order[moving], run[moving], left)
    return left


def _accumulated(sequence: Sequence) -> Mask:
    """Sums of gradients into what was set to zero."""
    size, forward = sequence.size_class, ~sequence.back & ~sequence.optimizer & (sequence.size_class != NONE)
    computed = sequence.kinds.are(Role.ELEMENTWISE, Role.REDUCTION, Role.RANDOM)
    weights = np.setdiff1d(size[forward & sequence.kinds.are(Role.CAST)], size[forward & computed])
    sums = sequence.data.profile.names_with(_SUM)[sequence.data.name[sequence.ops]]
    mask: Mask = sequence.back & sums & np.isin(size, weights)
    return mask


def _drop(sequence: Sequence, at: I64, run: I64, left: F64) -> None:
    """Per run: all copies go, and all casts but the last where the run ends in another type than it began with."""
    cast = sequence.kinds.are(Role.CAST)[at]
    left[at[_copied(sequence, at)]] = 0.0
    at, run = at[cast], run[cast]
    if not len(at):
        return
    gives = _gives(sequence, at)
    # Two casts to the same type are of two tensors.
    first = np.r_[True, (np.diff(run) != 0) | (np.diff(gives) == 0)]
    last = np.r_[first[1:], True]
    # A cast to half precision is from float, one to float from half precision, one to double from float.
    began = np.where(gives == 1, 0, 1)[first]
    needed = np.zeros(len(at), dtype=bool)
    needed[last] = gives[last] != began
    left[at[~needed]] = 0.0


def _gives(sequence: Sequence, at: I64) -> I64:
    """The type that each cast gives, as a place in `_GIVES`."""
    name, profile = sequence.data.name[sequence.ops[at]], sequence.data.profile
    return np.select([profile.names_with(pattern)[name] for pattern in _GIVES], [0, 1, 2], default=0)


def _copied(sequence: Sequence, at: I64) -> Mask:
    """Copies of whole tensors, not of strided ones or of parts: their bytes are recorded, or as those of a clone."""
    whole = sequence.sizes.source[at] > 3
    return sequence.kinds.are(Role.COPY)[at] & whole


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    return (
        title(
            "casts-and-copies",
            kernels=several(lost.kernels, "cast or copy is", "casts and copies are"),
            rank=lost.rank,
        ),
        f"casts that return to the original type, copies of whole tensors and zero fills take "
        f"{about(lost.took_ns)} of the step on rank {lost.rank}, {lost.most}",
        advice("casts-and-copies"),
    )


remedy, detect = claimed(ID, _worded)
