"""The rank that comes last in nearly all communication of the capture, as `stragglers` counts it."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.analyses.stragglers import stragglers
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.model.threshold import Threshold

NEARLY_ALWAYS = Threshold(
    90.0,
    "% of the communications",
    "of ranks alike, the last one changes; one that its host starves is last in 21 of 21",
    ("public/amd_merged_all.json.gz",),
)
MEETINGS_TO_TELL = Threshold(
    8,
    "communications",
    "with fewer, one rank may come last in nearly all of them by chance",
    ("public/amd_merged_all.json.gz",),
)


class Last(NamedTuple):
    """A rank, how often it comes last, and of how many communications."""

    rank: int
    times: int
    total: int


def last_rank(case: Case) -> Last | None:
    """The rank that comes last nearly always; None where there is none, or communication cannot be matched."""
    try:
        table = case.ask(stragglers).rows
    except CannotAnswer:
        return None
    total = int(table["times_last"].sum())
    first = table.sort("times_last", descending=True).row(0, named=True)
    often = total >= MEETINGS_TO_TELL.value and first["times_last"] >= NEARLY_ALWAYS.share * total
    return Last(int(first["rank"]), int(first["times_last"]), total) if often else None
