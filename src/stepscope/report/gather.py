"""Everything a report says, asked once: both the page and the Markdown are made from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import stepscope
from stepscope import progress
from stepscope.errors import Changed, StepscopeError
from stepscope.files import budget
from stepscope.model import heading
from stepscope.model.note import Note
from stepscope.report.asker import Asker
from stepscope.report.part import Missing, Part
from stepscope.report.sections import (
    breakdown,
    collectives,
    compute,
    findings,
    memory,
    overlap,
    peak,
    pipeline,
    roofline,
    steps,
    stragglers,
    timeline,
)
from stepscope.timeline.messages import Rank
from stepscope.timeline.ranks import ranks_of_setup


@dataclass(frozen=True)
class Report:
    """What was asked and answered. `timeline` is there only where it was wanted."""

    source: str
    command: str
    version: str
    ranks: list[Rank]
    findings: Part | None
    breakdown: Part
    parts: list[Part]
    timeline: timeline.Timeline | None
    missing: list[Missing]
    notes: list[Note]


def gather(asker: Asker, command: str, *, drawn: bool = True) -> Report:
    """Ask everything. What the profile cannot answer is listed, not fatal; only `breakdown` must be answered.

    `drawn` wants the timeline and the pipeline's chart, too, which Markdown has no room for.
    """
    missing: list[Missing] = []

    def tried(title: str, make: Callable[..., Any], *args: Any) -> Any:
        progress.report("sections", next(begun), total)
        try:
            with progress.phase(title):
                return make(asker, *args)
        except Changed:  # sections of two contents make no page
            raise
        except StepscopeError as reason:
            missing.append(Missing(title, str(reason)))
            return None
        finally:
            budget.settle()  # what a section made goes before the next begins

    where = breakdown.make(asker)
    setup = asker.ask("setup")
    budget.settle()
    run = (steps,) if drawn and steps.wanted(asker) else ()
    measured = (roofline,) if roofline.wanted(setup) else ()
    asked = (*run, compute, overlap, peak, *measured, memory, collectives, stragglers)
    begun, total = count(1), len(asked) + 1 + 2 * drawn  # findings; the timeline and the pipeline's chart
    drawing = tried(timeline.TITLE, timeline.make) if drawn else None
    # What a drawing or a diagnosis held is more than what it leaves, and settling looks at growth alone.
    budget.give_back()
    concluded = tried(findings.TITLE, findings.make)
    budget.give_back()
    made = [tried(s.TITLE, s.make) for s in asked]
    if drawing is not None:
        made.append(tried(pipeline.TITLE, pipeline.make, drawing.scales))
    parts = [p for p in made if p is not None]
    notes = [n for p in (concluded, where, *parts, drawing.part if drawing else None) if p is not None for n in p.notes]
    return Report(
        source=heading.source_line(setup),
        command=command,
        version=stepscope.__version__,
        ranks=ranks_of_setup(setup),
        findings=concluded,
        breakdown=where,
        parts=parts,
        timeline=drawing,
        missing=missing,
        notes=list(dict.fromkeys(notes)),
    )
