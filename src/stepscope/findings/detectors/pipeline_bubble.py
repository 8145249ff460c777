"""The pipeline's bubble is larger than its schedule makes it.

The bubble of a rank is the time of the step with neither compute nor communication other than the pipeline's; the ideal
is that of the schedule with even stages and transfers that take no time (`pipeline`). What could be saved is the mean
bubble beyond the ideal, less what a replay shows other findings to explain: exposed transfers, slow links, stragglers,
hosts that are late or slow, uneven stages. The ideal itself is not a fault of the run. Too few micro-batches make it
large: that is said in a note, with what twice as many would leave, and never counted as recoverable, since it changes
the batch.
"""

from __future__ import annotations

import numpy as np

from stepscope.analyses.pipeline import pipeline
from stepscope.derive.comm.purpose import purpose_of
from stepscope.derive.pipelines.schedules import PIPELINE, Shape, ideal
from stepscope.derive.rank.data import COMM
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.bubbles import bubble
from stepscope.findings.finding import Finding, Place
from stepscope.findings.texts import advice, title
from stepscope.findings.thresholds import SHOWN
from stepscope.model.note import Note, noted
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

LARGE_IDEAL_BUBBLE = Threshold(
    10.0,
    "% of the step",
    "from there on, twice as many micro-batches would give back 5 % of the step",
    ("tests/findings/test_thresholds.py::test_a_large_ideal_bubble_is_noted", "decision 0015"),
)


ID = "pipeline-bubble"
#: Schedules whose ideal is a count of chunks; that of others rests on how long chunks take, which is too rough here.
_EXACT = ("gpipe", "1f1b", "interleaved")


def detect(case: Case) -> list[Finding]:
    answer = case.once(bubble)
    if answer is None or answer.summary.get("schedule") not in _EXACT or answer.summary.get("ideal_pct") is None:
        return []
    rows = answer.rows.to_dicts()
    mean = float(np.mean([r["bubble_ns"] for r in rows]))
    least = answer.summary["ideal_pct"] / 100 * float(np.mean([r["step_ns"] for r in rows]))
    if not case.material(int(max(mean - least, 0)), SHOWN):
        return []
    # A host of no cost of its own: what is left is neither the host's nor another finding's.
    explained = case.replay.saved(case.before(ID) & _instant(case) & Change(every_host_factor=1e6))
    over = max(int(mean - least) - explained, 0)
    worst = max(rows, key=lambda r: (r["bubble_ns"], -r["rank"]))
    shape = f"{answer.summary.get('schedule')}, {answer.summary.get('stages')} stages"
    return [
        Finding(
            ID,
            title("pipeline-bubble", bubble=answer.summary["bubble_pct"], ideal=answer.summary["ideal_pct"]),
            over,
            "likely",
            f"the bubble averages {about(mean)} per rank and step, the ideal is {about(least)} ({shape}, "
            f"{answer.summary.get('micro_batches')} micro-batches); other findings explain "
            f"{about(explained)} of the difference; the largest is on rank {worst['rank']}: "
            f"{about(worst['bubble_ns'])} ({worst['bubble_pct']:.0f} %)",
            advice("pipeline-bubble"),
            ("pipeline", "--by rank"),
            figures=(worst["bubble_ns"],),
            ranks=tuple(r["rank"] for r in rows),
            where=_where(case, int(worst["rank"])),
            bound=True,
        )
    ]


def _instant(case: Case) -> Change:
    """The pipeline's transfers take no time."""
    ops = case.each_rank(
        lambda p, d, w: w.ops[d.role[w.ops] == COMM][
            (purpose_of(p, d, w.ops[d.role[w.ops] == COMM]) == PIPELINE).to_numpy()
        ]
    )
    return Change(transfers_instant=ops)


def _where(case: Case, rank: int) -> tuple[Place, ...]:
    """The longest waits between chunks of the rank with the largest bubble."""
    table = case.ask(pipeline, by="chunk").rows
    longest = (
        table.filter((table["rank"] == rank) & (table["before_ns"] > 0)).sort("before_ns", descending=True).head(10)
    )
    return tuple(Place(rank, s - b, s) for s, b in longest.select("start_ns", "before_ns").iter_rows())


def notes(case: Case) -> list[Note]:
    """The ideal bubble, where it is large."""
    answer = case.once(bubble)
    share = answer.summary.get("ideal_pct") if answer is not None else None
    if answer is None or share is None or share < LARGE_IDEAL_BUBBLE.value:
        return []
    s = answer.summary
    more = ideal(Shape(s["schedule"], s["stages"], 2 * s["micro_batches"], s.get("virtual", 1), ()), {})
    then = f"; with twice as many micro-batches {100 * more:.0f} %" if more is not None else ""
    return [
        noted(
            "schedule-bubble",
            schedule=s["schedule"],
            share=share,
            micro_batches=s["micro_batches"],
            stages=s["stages"],
            then=then,
        )
    ]
