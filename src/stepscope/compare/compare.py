"""The comparison itself: two sides in, a result out. Differences of the sides, then the step's in parts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, cast

from stepscope.compare import facts as about
from stepscope.compare.changing import matched, step_change
from stepscope.compare.columns import VARIANTS, shown
from stepscope.compare.facts import Difference
from stepscope.compare.rows import LONG, cut, rows_of
from stepscope.compare.run import IDLE, By
from stepscope.compare.side import Side
from stepscope.compare.verdict import Step, statement, verdict
from stepscope.compare.why import Gather, because, nothing_known
from stepscope.derive.rank.data import NO_STAGE
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.capturing import capture_by
from stepscope.model.note import Note, noted
from stepscope.model.result import Result, WindowRow
from stepscope.model.threshold import Threshold
from stepscope.statistics.changes import RUNS, Design

MARGIN_PCT = Threshold(
    3.0,
    "% of the step",
    "runs of one program on one machine differ by less; --margin says another",
    ("tests/compare/test_compare_pairs.py", "decision 0013"),
)
TOP = 20


def compare(
    base: Side,
    new: Side,
    *,
    by: By = "part",
    margin: float = MARGIN_PCT.value,
    top: int = TOP,
    gather: Gather = nothing_known,
) -> Result:
    """Rows by `by`, and the verdict on the step; deltas sum to the step's, to the nanosecond.

    Where the step changed, `gather` is asked for what says why.
    """
    if by not in VARIANTS:
        raise BadInput(f"--by {by!r} is not a choice", f"give one of {', '.join(VARIANTS)}")
    if not 0 < margin < 100:
        raise BadInput(f"--margin {margin:g}: not a share", "give a percentage above 0, such as 3")
    _same_window(base, new)
    if by == "stage":
        _both_have_stages(base, new)
    base, new, design = matched(base, new)
    step = step_change(base, new, design)
    differ = about.differences(base.facts, new.facts, (base.manifest, new.manifest))
    judged = verdict(step, margin)
    parts = rows_of("part", base, new, step, design)
    table = parts if by == "part" else rows_of(by, base, new, step, design)
    if by in LONG:
        table = cut(table, top)
    why = ""
    large = step.judged[2] is None and abs(step.pct(step.delta_ns) or 0.0) >= margin  # of one sample a side
    if (judged in ("faster", "slower") or large) and len(parts) > 1:
        kept = all("rank" in run.tables for side in (base, new) for run in side.runs)
        of_ranks = rows_of("rank", base, new, step, design) if kept else []
        why = because(step, parts, of_ranks, gather)
    summary: dict[str, Any] = {
        "verdict": judged,
        "step": step.summary(),
        **_kernels(base, new, step, design),
        **({"differs": [_shown(d) for d in differ]} if differ else {}),
        "statement": statement(judged, step, parts, differ, about.condition(new.facts), margin, why),
    }
    result = Result(shown(by, table), _windows(base, new), summary)
    result.notes = _notes(base, new, step, differ, design)
    result.command = "compare"
    result.sources = [*base.sources, *new.sources]
    result.ranks = len(new.ranks)
    return result


def _kernels(base: Side, new: Side, step: Step, design: Design) -> dict[str, Any]:
    """How many kernels are new, gone and changed, where both sides were measured kernel by kernel."""
    if any("kernel" not in run.tables for side in (base, new) for run in side.runs):
        return {}
    words = [r["verdict"] for r in rows_of("kernel", base, new, step, design) if r["key"] != IDLE]
    return {"kernels": {w: words.count(w) for w in ("new", "gone", "longer", "shorter")}}


def _same_window(base: Side, new: Side) -> None:
    kinds = [s.runs[0].kind for s in (base, new)]
    if any(r.kind != s.runs[0].kind for s in (base, new) for r in s.runs):
        raise CannotAnswer("the runs of one side mark their steps differently", "give --anchor REGEX, or --whole")
    if kinds[0] != kinds[1]:
        names = {"whole": "no steps", "step": "steps", "chunk": "chunks"}
        raise CannotAnswer(
            f"base has {names[kinds[0]]}, new has {names[kinds[1]]}: not the same window",
            "give --anchor REGEX that both have, or --whole",
        )


def _both_have_stages(base: Side, new: Side) -> None:
    without = [name for name, side in (("base", base), ("new", new)) if side.keys("stage") == [NO_STAGE]]
    if len(without) == 1:
        raise CannotAnswer(
            f"{without[0]} has no stage labels, but the other side does: stages cannot be compared",
            f"{capture_by('--ranges modules')}; --by part and --by family do without",
        )


def _windows(base: Side, new: Side) -> list[WindowRow]:
    rows: list[WindowRow] = []
    for name, side in (("base", base), ("new", new)):
        for k, run in enumerate(side.runs):
            which = f"{name}, run {k + 1} of {len(side.runs)}" if len(side.runs) > 1 else name
            for w in run.window:
                count = f" ({w['steps']} {run.kind}{'s' * (w['steps'] != 1)})" if run.kind != "whole" else ""
                label = f"{which}: {w['label']}{count}"  # of one clock alone
                rows.append(cast(WindowRow, {"side": name, "run": k, **w, "label": label, "index": 0, "count": 1}))
    return rows


def _shown(d: Difference) -> dict[str, str]:
    shown = asdict(d)
    del shown["variable"]
    return shown


def _notes(base: Side, new: Side, step: Step, differ: list[Difference], design: Design) -> list[Note]:
    notes = [
        noted("runs-understood", name=name, how=side.said) for name, side in (("base", base), ("new", new)) if side.said
    ]
    variables = [d.what for d in differ if d.variable]
    if len(variables) > 1:
        notes.append(
            noted(
                "several-variables",
                number=len(variables),
                names=", ".join(variables[:6]),
                more=", …" * (len(variables) > 6),
            )
        )
    if missing := about.unknown(base.facts, new.facts):
        notes.append(noted("one-side-says", missing=", ".join(missing)))
    if base.ranks != new.ranks:
        notes.append(noted("ranks-differ", base=len(base.ranks), new=len(new.ranks)))
    if any(d.what == "format" for d in differ):
        notes.append(noted("profilers-differ"))
    if step.uneven:
        notes.append(noted("uneven-steps", how=step.uneven))
    if step.low is not None and design is not RUNS:
        notes.append(noted("one-run-each", unit=step.unit))
    lengths = [len(run.labels) for side in (base, new) for run in side.runs]
    if design is RUNS and 2 * min(lengths) < max(lengths):
        notes.append(noted("runs-of-unequal-length", shortest=min(lengths), longest=max(lengths)))
    if step.unit == "chunk":
        notes.append(noted("samples-are-chunks"))
    shared = [n for n in base.notes if n in new.notes]
    apart = [n.of(name) for name, side in (("base", base), ("new", new)) for n in side.notes if n not in shared]
    return [*notes, *dict.fromkeys([*shared, *apart])]
