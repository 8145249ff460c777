"""Ranks that the others wait for, though nothing that was recorded says why: no replay tells what it would give back.

Either one comes last, and nothing took longer there than on its peers (`late_without_cause`, where no host was seen to
be late); or they begin the step late, and their records begin with it.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from stepscope.analyses.stragglers import stragglers
from stepscope.derive.windows.periods import periods
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.evidence.issued import serialized
from stepscope.findings.evidence.peers import stages
from stepscope.findings.evidence.shown import waiting
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.model.statement import several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

LATE_ALONE = Threshold(
    75.0,
    "% of the lateness",
    "of ranks alike, the last one changes; where one has three quarters of it, it is not chance",
    ("tests/findings/test_arrivals.py",),
)
LATE_FOR_LONG = Threshold(
    5.0,
    "% of the step",
    "what nothing recorded explains must be large to be worth a word: healthy ranks wait for each other for 1 to 2",
    ("tests/findings/test_arrivals.py", "tests/findings/test_healthy.py"),
)


class Arrival(NamedTuple):
    """A rank, by how much it comes late in the window, and how often it comes last, of how many communications."""

    rank: int
    ns: int
    times: int
    total: int


def late_without_cause(case: Case) -> Arrival | None:
    """Who has nearly all of the lateness, as `stragglers` tells it, and no cause; None where nobody is to blame.

    Only among ranks that all do the same work: a pipeline makes the next stage wait. And only where all ranks of the
    job are there: who comes last among some may wait for one that is missing.
    """
    if len(set(case.once(stages).values())) > 1:
        return None
    try:
        answer = case.ask(stragglers)
    except CannotAnswer:
        return None
    late = answer.rows.sort("late_ns", descending=True).row(0, named=True)
    if any(n.code == "ranks-missing" for n in answer.notes) or answer.summary["stragglers"]:
        return None
    steps = periods(case.data_of(late["rank"])) if case.kind == "step" else None
    each = late["late_ns"] // max(len(steps.anchors) if steps is not None else 1, 1)
    if late["share_pct"] < LATE_ALONE.value or each < LATE_FOR_LONG.share * case.step_ns:
        return None
    if _waits_itself(case, late["rank"]):
        return None
    return Arrival(late["rank"], each, late["times_last"], int(answer.rows["times_last"].sum()))


def _waits_itself(case: Case, rank: int) -> bool:
    """Whether it is late because it waits for its own communication at once: that has a finding of its own."""
    try:
        issued = case.once(serialized)
    except CannotAnswer:
        return False
    return rank in issued and bool(len(issued[rank].waited) or len(issued[rank].inline))


def comes_last(case: Case, id: str, arrival: Arrival) -> Finding:
    """The finding of a rank that comes last for no recorded cause."""
    figure = int(case.ask(stragglers).rows.filter(pl.col("rank") == arrival.rank)["late_ns"][0])
    return Finding(
        id,
        title("late-node/unseen", rank=arrival.rank, ns=about(arrival.ns)),
        min(arrival.ns, case.step_ns),
        "possible",
        f"it comes last in {arrival.times:,} of {several(arrival.total, 'communication')}, and the others wait "
        f"{about(figure)} for it in the capture; nothing recorded took longer there than on its peers: it was late "
        "before the capture began, or does work that is not recorded",
        advice("late-node/unseen"),
        ("stragglers", ""),
        ranks=(arrival.rank,),
        figures=(figure,),
        bound=True,
        stands_out=True,
    )


def begins_late(case: Case, id: str, ranks: tuple[int, ...], ns: int, who: str, one_host: bool) -> Finding:
    """The finding of ranks that begin the step late, and whose records begin with it."""
    text, figure = waiting(case)
    return Finding(
        id,
        title("late-node/late-from-the-start", who=who, s="s" * (len(ranks) == 1 or one_host), ns=about(ns)),
        min(ns, figure),
        "possible",
        f"the others wait for it in their first communication: {text}. Nothing was recorded before the step, so it "
        "may be late in this capture only: profilers do not start on all ranks at once",
        advice("late-node/late-from-the-start"),
        ("breakdown", ""),
        ranks=ranks,
        figures=(figure,),
        bound=True,
    )
