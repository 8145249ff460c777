"""What would change the peak: sharding over data-parallel ranks (ZeRO), recomputation, another mesh, a smaller batch.

Of a declared model each is another estimate. Of a recording without one, sharding is arithmetic on what was measured,
moment by moment, and recomputation is known by its bound only: it can save no more than all activations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stepscope.analyses.memory.ledger import Ledger
from stepscope.derive.memory.estimate import Job, estimate
from stepscope.errors import BadInput
from stepscope.intervals.arrays import F64
from stepscope.model.statement import listed

#: Ranks to shard over, where nobody says.
RANKS = 8


@dataclass(frozen=True)
class Change:
    """One change: the peak with it; `bound` where it can only be that much at best."""

    name: str
    peak: int
    saves: int
    bound: bool
    how: str


def of_job(job: Job) -> list[Change]:
    """Estimates of the same job, each with one thing changed."""
    base = estimate(job).size
    if job.kv_tokens:
        return _of_server(job, base)
    ranks = job.dp if job.dp > 1 else RANKS
    m = job.model
    variants: list[tuple[str, Job, str]] = [
        (f"ZeRO {stage} over {ranks} ranks", replace(job, zero=stage, dp=ranks), _ZERO[stage])
        for stage in (1, 2, 3)
        if stage > job.zero
    ]
    if not job.recompute:
        variants.append(("recomputation", replace(job, recompute=True), "each layer keeps its input, and runs again"))
    if job.mbs > 1:
        variants.append((f"micro-batch of {job.mbs // 2}", replace(job, mbs=job.mbs // 2), "half the tokens at a time"))
    for axis, what in _AXES.items():
        larger = 2 * getattr(job, axis)
        if axis != "ep" or m.experts:
            variants.append((f"{axis} = {larger}", replace(job, **{axis: larger}), what))
    if job.optimizer == "adamw":
        variants.append(("fused AdamW", replace(job, optimizer="adamw-fused"), "no copy beside the states in the step"))
    return _estimated(variants, base)


def _of_server(job: Job, base: int) -> list[Change]:
    """What a server can change: fewer tokens in its cache, or more ranks."""
    variants = [
        ("half the tokens held", replace(job, kv_tokens=job.kv_tokens // 2), "fewer sequences at a time, or shorter"),
        *(
            (f"{axis} = {2 * getattr(job, axis)}", replace(job, **{axis: 2 * getattr(job, axis)}), what)
            for axis, what in _AXES.items()
            if axis != "ep" or job.model.experts
        ),
    ]
    return _estimated(variants, base)


def _estimated(variants: list[tuple[str, Job, str]], base: int) -> list[Change]:
    """The peak of each, where it is a mesh."""
    changes = []
    for name, changed, how in variants:
        try:
            peak = estimate(changed).size
        except BadInput:  # what does not divide is not a mesh
            continue
        changes.append(Change(name, peak, base - peak, False, how))
    return changes


_ZERO = {
    1: "optimizer states are divided",
    2: "gradients too; no buckets of DDP",
    3: "weights too; two layers of them are gathered at a time",
}
_AXES = {
    "tp": "heads, feed-forward and vocabulary are divided; norms are not",
    "pp": "layers are divided; the first stage holds as many micro-batches as there are stages",
    "cp": "tokens of a sequence are divided",
    "ep": "experts are divided",
}


def of_ledger(ledger: Ledger, dp: int) -> list[Change]:
    """Arithmetic on a measured ledger, `dp` the ranks to shard over. Each change has a peak of its own: that of what is
    given out without what it saves, at whatever moment that is then."""
    ranks = dp if dp > 1 else RANKS
    all_of = {name: ledger.part_over_time(name) for name in ("optimizer states", "gradients", "weights", "activations")}
    given = ledger.history.allocated
    beside = ledger.reserved - ledger.allocated

    def change(name: str, saved: F64, how: str, *, bound: bool = False) -> Change:
        peak = int((given - saved).max()) + beside
        return Change(name, peak, ledger.reserved - peak, bound, how)

    changes, saved = [], np.zeros(len(given))
    sharded = ("optimizer states", "gradients", "weights")
    for stage, part in enumerate(sharded, 1):
        saved = saved + all_of[part] * (1 - 1 / ranks)
        how = f"{listed(sharded[:stage])}, as measured, divided"
        changes.append(change(f"ZeRO {stage} over {ranks} ranks", saved, how))
    if all_of["activations"].any():
        how = "all activations, less what layers keep instead (--model tells)"
        changes.append(change("recomputation", all_of["activations"].astype(np.float64), how, bound=True))
    if beside:
        how = "what is reserved and not given out"
        changes.append(Change("expandable segments", ledger.allocated, beside, True, how))
    return changes
