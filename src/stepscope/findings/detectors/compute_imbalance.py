"""Ranks have unequal amounts to compute, though no single one is slow.

Pipeline stages: some hold more (layers, the head, the embedding), and the others wait for them with every micro-batch.
What it could save is the step replayed with every stage's compute at the mean of all. Ranks of one stage: several
of them have more to do than the others (sequence lengths, the last batch): replayed with the median of their peers.
Slow GPUs (`straggler`) and uneven tokens (`expert-imbalance`) are other faults, and taken out first.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.peers.compute import Compared
from stepscope.derive.rank.data import COMPUTE, ranks_of
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import sure
from stepscope.findings.evidence.peers import compared, kernels
from stepscope.findings.evidence.shown import part, peer_of
from stepscope.findings.evidence.stragglers import guilty, more_work, suspects
from stepscope.findings.evidence.tokens import heavy, kept
from stepscope.findings.finding import Finding, Place
from stepscope.findings.texts import advice, title
from stepscope.model.labels import setups
from stepscope.model.ranks import some_ranks
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

STAGES_EVEN = Threshold(
    1.03,
    "times the mean stage",
    "stages of as many layers each differ by up to 1.02",
    ("tests/findings/test_healthy.py", "h200/moe4/overlapped.sqlite", "tests/data/moe_reference"),
)


ID = "compute-imbalance"


def detect(case: Case) -> list[Finding]:
    if len(case.ranks) < 2:
        return []
    return [*_stages(case), *_ranks(case)]


def _amounts(case: Case) -> dict[int, float]:
    """Compute of each rank that recorded the whole step, without what other findings explain."""
    table = case.once(kernels)
    total = {int(r): float(ns) for r, ns in table.group_by("rank").agg(pl.col("ns").sum()).iter_rows()}
    for rank in case.once(heavy):  # the others of the group may have less for it
        total[rank] -= (1 - case.once(kept)[rank]) * case.once(compared)[rank].excess_ns
    for rank, c in case.once(guilty).items():
        total[rank] -= c.excess_ns
    return total


def _by_stage(case: Case) -> dict[int, list[int]]:
    """Ranks by their place in the pipeline, where all have one."""
    labels = setups(case.profile.ranks)
    stages: dict[int, list[int]] = {}
    for rank in case.ranks if labels.keys() >= set(case.ranks) else ():
        stages.setdefault(labels[rank].at("pp"), []).append(rank)
    return stages


def uneven(case: Case) -> dict[int, float]:
    """Compute of a rank of each pipeline stage, where some have materially more than the mean; else nothing."""
    stages = case.once(_by_stage)
    if len(stages) < 2:
        return {}
    total = _amounts(case)
    whole = {s: [total[r] for r in ranks if r in total] for s, ranks in stages.items()}
    if not all(whole.values()):
        return {}
    amount = {s: float(np.median(of_stage)) for s, of_stage in whole.items()}
    most, mean = max(amount.values()), float(np.mean(list(amount.values())))
    return amount if most > STAGES_EVEN.value * mean and case.material(int(most - mean)) else {}


def remedy(case: Case) -> Change:
    """The step with as much to compute on every pipeline stage."""
    amount, stages = case.once(uneven), case.once(_by_stage)
    place = {r: s for s, ranks in stages.items() for r in ranks}
    factors = {}
    for data in ranks_of(case.profile) if amount else ():
        if data.rank in case.windows and amount[place[data.rank]]:
            ops = case.windows[data.rank].ops
            ops = ops[data.role[ops] == COMPUTE]
            mean = float(np.mean(list(amount.values())))
            factors[data.rank] = ops, np.full(len(ops), mean / amount[place[data.rank]])
    return Change(op_factor=factors)


def _stages(case: Case) -> list[Finding]:
    amount, stages = case.once(uneven), case.once(_by_stage)
    if not amount:
        return []
    mean = float(np.mean(list(amount.values())))
    heavy = [s for s, ns in amount.items() if ns > STAGES_EVEN.value * mean]
    worst = max(heavy, key=lambda s: amount[s])
    ranks = tuple(sorted(r for s in heavy for r in stages[s]))
    texts = ", ".join(f"stage {s} {about(amount[s])}" for s in sorted(amount))
    most = max(stages[worst], key=lambda r: (part(case, r, "compute_ns"), -r))
    light = stages[min(amount, key=lambda s: amount[s])][0]
    figures = tuple(part(case, r, "compute_ns") for r in (most, light))
    return [
        Finding(
            ID,
            title("compute-imbalance/stages", worst=worst, amount=100 * (amount[worst] / mean - 1)),
            case.credit(ID),
            sure(case),
            f"compute of a rank per step: {texts}; compute runs for {about(figures[0])} of it on rank {most}, "
            f"for {about(figures[1])} on rank {light}; the others wait for the longest with every micro-batch",
            advice("compute-imbalance/stages"),
            ("breakdown", ""),
            ranks=ranks,
            figures=figures,
            stage=f"pipeline stage {worst}",
            where=_where(case, ranks, light),
        )
    ]


def _ranks(case: Case) -> list[Finding]:
    more = {r: c for r, c in case.once(suspects).items() if r not in case.once(guilty)}
    if len(more) < 2:
        return []
    worst: Compared = max(more.values(), key=lambda c: (c.excess_ns, -c.rank))
    how = more_work(worst)
    ranks = tuple(sorted(more))
    peer = peer_of(case, worst.rank, ranks)
    figures = tuple(part(case, r, "compute_ns") for r in (worst.rank, peer) if r is not None)
    than = f" and for {about(figures[1])} on rank {peer}" if peer is not None else ""
    return [
        Finding(
            ID,
            title("compute-imbalance/ranks", ranks=some_ranks(ranks), how=f": {how.how}" if how.how else ""),
            case.credit(ID, Change(kernel_factor={r: c.factors() for r, c in more.items()})),
            sure(case),
            f"rank {worst.rank} computes {about(worst.excess_ns)} per step beyond the median of its "
            f"peers{how.evidence}; compute runs for {about(figures[0])} of the step there{than}",
            how.hint,
            ("breakdown", ""),
            ranks=ranks,
            figures=figures,
            where=_where(case, ranks, peer),
            stands_out=True,
        )
    ]


def _where(case: Case, ranks: tuple[int, ...], peer: int | None) -> tuple[Place, ...]:
    """The step of the ranks in question, a peer's beside the first."""
    spans = [case.windows[r] for r in (ranks[0], *([peer] if peer is not None else []), *ranks[1:])]
    return tuple(Place(w.rank, w.gpu_start_ns or 0, w.gpu_end_ns or 0) for w in spans)[:10]
