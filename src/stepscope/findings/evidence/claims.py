"""Which kernel belongs to which cause: each to one, so that a loss is claimed once.

A kernel may fit several: the casts within an attention written by hand are casts, a chain of elementwise kernels, and
attention. Causes take what is theirs in this order; what is named more closely comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct

from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import each_host
from stepscope.findings.evidence.sequence import Sequence, sequences
from stepscope.findings.evidence.wasted import Told, Waste, change, wasted
from stepscope.findings.finding import Finding
from stepscope.findings.registry import claim
from stepscope.intervals.arrays import F64, I8

#: Causes whose kernels would be one kernel. That the host launches an optimizer's kernels one by one is `tiny-kernels`.
_MERGED = ("slow-optimizer", "attention-by-hand", "experts-one-by-one", "unfused-kernels")
_LAUNCHED = ("slow-optimizer",)
#: Which cause takes first; what it takes says `claim` of its detector: what is left of each kernel that is its own (by
#: position, NaN for others), of those still free.
CAUSES = (
    "unused-forward",
    "unused-gradients",
    "experts-one-by-one",
    "slow-indexing",
    "slow-optimizer",
    "slow-loss",
    "attention-by-hand",
    "odd-shapes",
    "memory-layout",
    "unfused-kernels",
    "casts-and-copies",
)


class Claims(Struct, frozen=True):
    """Of one rank, by position of its sequence: the cause (index into CAUSES, -1 for none), and what is left."""

    sequence: Sequence
    cause: I8
    left: F64


def claims(case: Case) -> dict[int, Claims]:
    """By rank; made once per case."""
    return case.once(_claims)


def _claims(case: Case) -> dict[int, Claims]:
    of_ranks = sequences(case)
    return each_host(case, lambda host: _of(of_ranks[host.data.rank]))


def _of(sequence: Sequence) -> Claims:
    cause = np.full(len(sequence.ops), -1, dtype=np.int8)
    left = np.ones(len(sequence.ops))
    for number, name in enumerate(CAUSES):
        of_its_own = claim(name)(sequence, cause < 0)
        taken = ~np.isnan(of_its_own) & (cause < 0)
        cause[taken], left[taken] = number, of_its_own[taken]
    sequence.let_go()
    return Claims(sequence, cause, left)


def claimed(
    ident: str, worded: Callable[[Case, Told], tuple[str, str, str]], **more: Any
) -> tuple[Callable[[Case], Change], Callable[[Case], list[Finding]]]:
    """`remedy` and `detect` of a cause. `worded` gives title, evidence and what to try."""

    def remedy(case: Case) -> Change:
        return change(case, wastes(case, ident))

    def detect(case: Case) -> list[Finding]:
        return wasted(case, ident, wastes(case, ident), lambda lost: worded(case, lost), **more)

    return remedy, detect


def wastes(case: Case, cause: str) -> dict[int, Waste]:
    """By rank: the kernels of a cause."""
    number = CAUSES.index(cause)
    wastes = {}
    for rank, claimed in claims(case).items():
        mine = (claimed.cause == number) & (claimed.left < 1)
        if mine.any():
            ops, left = claimed.sequence.ops[mine], claimed.left[mine]
            wastes[rank] = Waste(ops, left, merged=cause in _MERGED, launched_once=cause not in _LAUNCHED)
    return wastes
