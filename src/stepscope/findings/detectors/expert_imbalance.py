"""A rank gets more tokens than the others of its expert-parallel group, and they wait for it.

Tokens show in the bytes of its all-to-alls, in how long it is in them after the last rank has come, and in the kernels
of its experts: it computes longer than its peers, by the rule that names a `straggler` too. What it could save is
the step replayed with an even share of tokens: its experts' kernels as long as its peers' and its all-to-alls over as
soon, but for what an even share leaves to it. Kernels that are slower on a rank whose bytes are those of the others are
a slow GPU's: `straggler`.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.comm.kinds import ALL_TO_ALL
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.meetings import sides
from stepscope.findings.evidence.peers import compared, pipeline_stage
from stepscope.findings.evidence.places import longest_kernels
from stepscope.findings.evidence.shown import beside, matched, peer_of
from stepscope.findings.evidence.tokens import heavy, kept
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.model.ranks import ranks_text
from stepscope.model.units import about

ID = "expert-imbalance"

#: Experts' kernels, where bytes are not recorded.
_EXPERTS = r"(?i)group(ed)?_?gemm|gemm_?grouped|\bmoe|expert"


def remedy(case: Case) -> Change:
    """The step with an even share of tokens on every rank."""
    more = case.once(heavy)
    if not more:
        return Change()
    table = case.once(sides)
    a2a = table.filter((pl.col("kind") == ALL_TO_ALL) & (pl.col("present") > 1)).with_columns(
        (pl.col("ns") - pl.col("ns").min().over("meeting")).alias("over")
    )
    kernels, sooner = {}, {}
    for rank in more:
        of_rank = a2a.filter(pl.col("rank") == rank)
        keep = case.once(kept)[rank]
        kernels[rank] = case.once(compared)[rank].factors(keep)
        sooner[rank] = of_rank["op"].to_numpy(), (of_rank["over"].to_numpy() * (1 - keep)).astype(np.int64)
    return Change(kernel_factor=kernels, departure_less_ns=sooner)


def detect(case: Case) -> list[Finding]:
    more = case.once(heavy)
    if not more:
        return []
    ranks = tuple(sorted(more))
    worst = max(ranks, key=lambda r: (more[r], -r))
    over = case.once(compared)[worst].slower
    longer = float(over["ns"].sum()) / float(over["like_ns"].sum()) if over.height else 1.0
    named = over.filter(pl.col("name").str.contains(_EXPERTS))
    which = "grouped GEMMs and what goes with them" if named.height else "experts' kernels"
    uneven = next(r["bytes_vs_mean_pct"] for r in matched(case, "op").summary["all_to_all"] if r["rank"] == worst)
    stages = {pipeline_stage(case, r) for r in ranks}
    who = f"rank {worst} gets" if len(ranks) == 1 else f"ranks {ranks_text(ranks)} get up to"
    return [
        Finding(
            ID,
            title("expert-imbalance", who=who, more=more[worst]),
            case.credit(ID),
            "likely",
            f"all-to-alls of rank {worst} carry {more[worst]:.2f} times the bytes of the others' in its group "
            f"({uneven:.0f} % of the mean); its {which} take {about(float((over['ns'] - over['like_ns']).sum()))} "
            f"longer per step ({longer:.2f} times as long), and the group waits for it in the next all-to-all",
            advice("expert-imbalance"),
            ("collectives", "--by op"),
            ranks=ranks,
            figures=(uneven,),
            stage=stages.pop() if len(stages) == 1 else None,
            where=beside(case, longest_kernels(case, worst, over["name"].to_list()), peer_of(case, worst, ranks)),
            stands_out=True,
        )
    ]
