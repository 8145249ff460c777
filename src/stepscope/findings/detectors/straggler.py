"""One rank computes longer than ranks that do the same work, and the others wait for it.

Its GPU is slow where nearly all of its kernels take longer than its peers'; it has more to do where it launches more of
them, or only some are longer. What it could give back is the step replayed with its kernels as long as the median of
its peers'. More tokens for its experts are another fault (`expert-imbalance`), and so is a host that is late.
"""

from __future__ import annotations

import polars as pl

from stepscope.analyses._change import Change
from stepscope.analyses._shorten import shorten
from stepscope.findings.case import Case
from stepscope.findings.detectors import expert_imbalance
from stepscope.findings.finding import Finding
from stepscope.findings.peers import ALIKE, Compared, compared, pipeline_stage
from stepscope.findings.words import ms

ID = "straggler"

#: A GPU is slow where all but this share of its compute takes longer.
_BUT = 0.2


def change(case: Case) -> dict[int, Change]:
    """By rank with more compute than its peers: the step with as much as they have."""
    heavy = case.once(expert_imbalance.loads)
    found = {}
    for rank, mine in case.once(compared).items():
        if rank in heavy or not case.material(mine.excess_ns):
            continue
        if mine.alone and mine.ratio_at(_BUT) < ALIKE:  # kernels of other stages have other shapes
            continue
        found[rank] = Change(kernels={rank: mine.factors()})
    return found


def detect(case: Case) -> list[Finding]:
    return [_finding(case, case.once(compared)[rank], what) for rank, what in case.once(change).items()]


def _finding(case: Case, mine: Compared, what: Change) -> Finding:
    rank, over = mine.rank, mine.slower
    ratio = mine.ratio_at(_BUT)
    all_slow = ratio >= ALIKE
    saved = case.saved(what)
    stage = pipeline_stage(case, rank)
    place = f" ({stage})" if stage else ""
    took = ms(mine.excess_ns / case.steps)
    beside = "ranks with kernels of the same names" if mine.alone else "ranks that do the same work"
    if all_slow:
        whole = float(over["ns"].sum() / over["like_ns"].sum()) if over.height else ratio
        title = f"rank {rank}{place} computes {whole:.2f} times as long as its peers"
        evidence = (
            f"nearly all of its kernels take longer than the median of {beside}: {took} of compute more per step, "
            f"{whole:.2f} times as long on average"
        )
        hint = "look at that GPU: clocks, power cap, temperature, ECC, another process on it; swap it for a spare"
    else:
        title = f"rank {rank}{place} has {took} more to compute than its peers"
        evidence = f"{took} of compute more per step than {beside}, but not in all kernels: {_most(over)}"
        hint = "find what this rank alone does there: its share of the batch, sequence lengths, extra work, a branch"
    return Finding(
        ID,
        title,
        saved,
        "medium" if mine.alone else "high",
        evidence,
        hint,
        ("stragglers", ""),
        ranks=(rank,),
        stage=stage,
        where=expert_imbalance.longest_kernels(case, rank, [str(n) for n in over["name"].head(5).to_list()]),
    )


def _most(over: pl.DataFrame) -> str:
    """The kernels with most of the excess: longer, or more of them."""
    if over.height == 0:
        return "spread over many"
    texts = []
    for name, n, ns, like_n, like_ns in over.select("name", "n", "ns", "like_n", "like_ns").head(2).iter_rows():
        more = f"{n} launches for {like_n:.0f}" if n > 1.02 * like_n else f"{ns / like_ns:.2f} times as long"
        texts.append(f"{shorten(name)} {ms(ns - like_ns)} ({more})")
    return ", ".join(texts)
