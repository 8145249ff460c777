"""Gradients are reduced in every micro-batch of a step, though they are used once, at its end.

The same reductions, of the same sizes in the same order, come again for each micro-batch, with a forward pass between.
All but the last round could be left out (`no_sync`), and the sum of the gradients reduced once. What it could save
is the step replayed with transfers of the earlier rounds that take no time.
"""

from __future__ import annotations

from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import sure
from stepscope.findings.evidence.places import longest, places
from stepscope.findings.evidence.rounds import rounds
from stepscope.findings.evidence.shown import part
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.model.units import about

ID = "repeated-reduction"


def remedy(case: Case) -> Change:
    """Transfers of the earlier rounds take no time."""
    return Change(transfers_instant={r: of.ops for r, of in case.once(rounds).items()})


def detect(case: Case) -> list[Finding]:
    by_rank = case.once(rounds)
    if not by_rank or len(by_rank) < len(case.ranks):
        return []
    first = next(iter(by_rank.values()))
    worst = max(case.ranks, key=lambda r: (part(case, r, "comm_exposed_ns"), -r))
    exposed = part(case, worst, "comm_exposed_ns")
    return [
        Finding(
            ID,
            title("repeated-reduction", times=first.times),
            case.credit(ID, at_most=exposed),
            sure(case),
            f"{first.each} reductions of {first.bytes / 1e6:,.1f} MB in all run {first.times} times on every "
            "rank, with the same sizes in the same order and a forward pass in between; communication is exposed for "
            f"{about(exposed)} of the step on rank {worst}",
            advice("repeated-reduction"),
            ("breakdown", ""),
            ranks=case.ranks,
            figures=(exposed,),
            where=longest(
                p
                for r, of in by_rank.items()
                for p in places(r, case.data_of(r).start[of.ops], case.data_of(r).end[of.ops])
            ),
        )
    ]
