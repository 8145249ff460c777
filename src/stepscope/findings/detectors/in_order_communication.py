"""Communication in order with compute, on the stream that computes: tensor-parallel all-reduces, as a rule.

Nothing can run beside it on its stream, and the next kernel waits for it. Often its result is needed at once; then it
is hidden only by splitting the work (half of the tokens communicate while the other half computes), by a fused kernel,
or by doing less of it. What it could save is the step replayed with those transfers taking no time: the most that
can be had. Ranks still wait for whoever is late.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.accounting.exposure import comm_ops
from stepscope.derive.comm.calls import operations
from stepscope.derive.rank.data import COMPUTE, RankData
from stepscope.derive.replay.change import Change
from stepscope.derive.windows.window import Window
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import guilty
from stepscope.findings.evidence.issued import serialized
from stepscope.findings.evidence.parts import Part, most_exposed, spans_of
from stepscope.findings.evidence.places import places_of
from stepscope.findings.evidence.shared_gpu import hideable
from stepscope.findings.evidence.shown import communication
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.model.profile import Profile
from stepscope.model.units import about

ID = "in-order-communication"


def _in_order(case: Case) -> dict[int, tuple[Part, str]]:
    """By rank: communication on streams that compute, and what most of it is; without what was only issued badly."""
    try:
        issued = {r: np.union1d(s.waited, s.inline) for r, s in case.once(serialized).items()}
    except CannotAnswer:
        issued = {}

    def of(profile: Profile, data: RankData, window: Window) -> tuple[Part, str] | None:
        comm = comm_ops(data, window)
        chosen = comm.barrier & ~np.isin(comm.ops, issued.get(data.rank, comm.ops[:0]))
        if not chosen.any() or not (data.role[window.ops] == COMPUTE).any():
            return None
        names = operations(data, comm.ops[chosen]).fill_null("communication")
        kind = str(names.value_counts().sort(["count", names.name], descending=[True, False])[names.name][0])
        part = Part(comm.ops[chosen], comm.exposed[chosen], int(comm.length[chosen].sum()), comm.wall_ns(chosen))
        return part, f"{kind.replace('_', '-')}s" if kind != "communication" else kind

    return {r: found for r, found in case.each_rank(of).items() if found is not None}


def detect(case: Case) -> list[Finding]:
    by_rank = case.once(_in_order)
    wall = {r: p.wall_ns for r, (p, _) in by_rank.items()}
    if not case.material(max(wall.values(), default=0)):
        return []
    ranks = guilty(wall)
    worst = max(ranks, key=lambda r: (wall[r], -r))
    part, what = by_rank[worst]
    barrier = int(communication(case, worst)["barrier_ns"])
    take = "takes" if len(part.ops) == 1 else "take"
    beyond = f" (of {about(barrier)} in order with compute)" if barrier != part.comm_ns else ""
    instant = Change(transfers_instant={r: p.ops for r, (p, _) in by_rank.items()})
    try:
        saved = case.credit(ID, instant, max(wall.values()))
    except CannotAnswer:
        saved = max(wall.values())
    can_hide = hideable(case, instant.transfers_instant)
    return [
        Finding(
            ID,
            title("in-order-communication", what=what),
            can_hide.of(saved),
            "likely",
            f"{len(part.ops):,} of them on rank {worst} {take} {about(part.comm_ns)} of the step on a compute stream"
            f"{beyond}, and for {about(wall[worst])} of that nothing else runs. That includes waiting for other "
            f"ranks{can_hide.words}",
            advice("in-order-communication"),
            ("overlap", ""),
            ranks=ranks,
            figures=(barrier,),
            where=places_of(case, most_exposed({r: p for r, (p, _) in by_rank.items()})),
            covers=spans_of(case, {r: p.ops for r, (p, _) in by_rank.items()}),
            high_ns=saved,
            bound=True,
        )
    ]
