"""The comparison for CI: limits in, checks out; `GateFailed` where one does not pass.

A limit is how much more than the base is allowed, as a share of the base's *step*: exposed communication of 3 µs that
doubles is not a reason to stop a merge. `mean` and `p99` limit the pace, each as a share of itself: a checkpoint that
takes longer, or a spike, moves no median.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np

from stepscope.compare import facts as about
from stepscope.compare.baseline import same
from stepscope.compare.changing import matched, step_change
from stepscope.compare.compare import compare
from stepscope.compare.quantile import fewest, quantile_change
from stepscope.compare.resolution import FLOOR
from stepscope.compare.run import PARTS as ALL_PARTS
from stepscope.compare.run import UNSPLIT
from stepscope.compare.side import Side
from stepscope.compare.verdict import Step
from stepscope.errors import BadInput, CannotAnswer, GateFailed, meant_of
from stepscope.model.note import noted
from stepscope.model.result import Result, blank, rows
from stepscope.model.tomlfile import read_toml
from stepscope.statistics.changes import RUNS, Change, Design, mean_change, median_change


class Row(TypedDict):
    check: Annotated[
        str, "what is limited: step, mean, p99, a part, stage:NAME, family:NAME, rank:N, kernel:NAME; comparable"
    ]
    status: Annotated[str, "passed, failed or inconclusive"]
    limit_pct: Annotated[float | None, "growth that is allowed, as a share of the base's step"]
    step_pct: Annotated[float | None, "growth found, as a share of the base's step"]
    low_step_pct: Annotated[
        float | None, "lower end of its interval; the intervals of all checks hold together with 95 %"
    ]
    high_step_pct: Annotated[float | None, "upper end"]
    base_ns: Annotated[
        int | None, "in the median step of the base; in the mean one where steps of very different lengths recur"
    ]
    new_ns: Annotated[int | None, "in that of the new side"]
    diff_ns: Annotated[int | None, "new - base"]
    why: Annotated[str, "what decided"]


DEFAULT: dict[str, float] = {"step": 2.0}
PASSED, FAILED, OPEN = "passed", "failed", "inconclusive"
_KEYED = ("stage", "family", "rank", "kernel")
#: The pace: limits of it are shares of itself.
_PACE = ("mean", "p99")
_P99 = 0.99
#: Parts that can be limited.
PARTS = ALL_PARTS[:UNSPLIT]


@dataclass(frozen=True)
class Limit:
    """At most so much growth, in percent of the base's step."""

    check: str
    pct: float

    @property
    def table(self) -> tuple[str, str]:
        """The table that holds it, and its key there."""
        by, _, key = self.check.partition(":")
        return (by, key) if key else ("part", by)


def parse_limits(file: Path | None, given: Iterable[str]) -> list[Limit]:
    """From a TOML file, then from `NAME=PERCENT` texts, which count more; the default where there are none."""
    limits: dict[str, float] = dict(_from_file(file)) if file is not None else {}
    for text in given:
        name, eq, value = text.rpartition("=")
        if not eq:
            raise BadInput(f"--limit {text!r}: no limit", "write NAME=PERCENT, as in step=2 or stage:stage2_f=1")
        limits[name.strip()] = percentage(f"--limit {text!r}", value)
    return [Limit(_checked(name), pct) for name, pct in (limits or DEFAULT).items()]


def limited() -> list[str]:
    """How limits begin: `step=`, `stage:`."""
    return [*(f"{name}=" for name in ("step", *_PACE, *PARTS)), *(f"{by}:" for by in _KEYED)]


def _from_file(file: Path) -> dict[str, float]:
    content, _ = read_toml(file, f"--limits {file}", "give a TOML file with a table [limits]")
    table = content.get("limits")
    if not isinstance(table, dict) or not table or set(content) != {"limits"}:
        raise BadInput(
            f"--limits {file}: expected one table, [limits], and nothing else", "write [limits], then step = 2.0"
        )
    limits: dict[str, float] = {}
    for name, value in table.items():
        inner = value.items() if isinstance(value, dict) else [(None, value)]
        for key, number in inner:
            full = name if key is None else f"{name}:{key}"
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise BadInput(f"--limits {file}: {full} = {number!r} is not a number", "give a percentage, as in 2.0")
            limits[full] = percentage(f"--limits {file}: {full}", number)
    return limits


def percentage(where: str, value: Any) -> float:
    """A limit as users write it: `2`, `0.5%`."""
    try:
        number = float(str(value).strip().removesuffix("%"))
    except ValueError:
        raise BadInput(f"{where}: {value!r} is not a percentage", "write NAME=PERCENT, as in step=2") from None
    if not 0 <= number < 1000:
        raise BadInput(f"{where}: {number:g} is out of range", "give 0 or more")
    return number


def _checked(name: str) -> str:
    by, colon, key = name.partition(":")
    if (colon and by in _KEYED and key) or (not colon and name in ("step", *_PACE, *PARTS)):
        return name
    raise BadInput(
        f"limit {name!r}: not known", meant_of(name, ["step", *_PACE, *PARTS, *(f"{k}:NAME" for k in _KEYED)])
    )


def gate(base: Side, new: Side, limits: list[Limit], *, allow_inconclusive: bool = False) -> Result:
    """All checks; `GateFailed`, with the result, where one failed or (unless allowed) could not be decided."""
    answer = compare(base, new)
    itself = same(base, new)
    base, new, design = matched(base, new)
    step = step_change(base, new, design)
    differ = about.differences(base.facts, new.facts, (base.manifest, new.manifest))
    checks = [_comparable([d.what for d in differ if d.job])]
    checks += [_check(limit, base, new, step, design, len(limits)) for limit in limits]
    if itself:
        checks = [{**c, "status": OPEN, "why": "the same capture on both sides: nothing was tested"} for c in checks]
    count = {s: sum(c["status"] == s for c in checks) for s in (PASSED, FAILED, OPEN)}
    bad = [c for c in checks if c["status"] == FAILED or (c["status"] == OPEN and not allow_inconclusive)]
    undecided = [
        noted("gate-check", status=c["status"], check=c["check"], why=c["why"]) for c in checks if c["status"] != PASSED
    ]
    notes = [*undecided, *answer.notes]
    if itself:
        notes.insert(0, noted("same-capture"))
    result = Result(rows(Row, checks), answer.window, {"pass": not bad, **count}, notes, "gate")
    result.summary |= {k: answer.summary[k] for k in ("verdict", "step", "differs", "statement") if k in answer.summary}
    result.sources, result.ranks = answer.sources, answer.ranks
    if bad:
        bad.sort(key=lambda c: c["status"] != FAILED)
        first = f"{bad[0]['check']}: {bad[0]['why']}"
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        decides = "a capture of the new run" if itself else "more steps or runs"
        decided = any(c["status"] == FAILED for c in bad)
        hint = None if decided else f"{decides} would decide; --allow-inconclusive passes"
        raise GateFailed(f"the gate failed: {first}{more}", hint, result)
    return result


def _comparable(differ: list[str]) -> Row:
    why = f"another job ({', '.join(differ)})" if differ else "the same job, as far as the captures say"
    return {**blank(Row), "check": "comparable", "status": OPEN if differ else PASSED, "why": why}


def _pace(limit: Limit, base: Side, new: Side, step: Step, design: Design, rows: int) -> Row:
    """The mean step, or the 99th percentile of steps, as a share of itself."""
    if limit.check == "mean":
        sums = [side.samples("part", ["step"], design is RUNS, mean=True)[2] for side in (base, new)]
        change = mean_change(sums[0][:, None], sums[1][:, None], sums[0], sums[1], design, rows)
    else:
        before_ns, after_ns = (np.concatenate([run.step_ns for run in side.runs]) for side in (base, new))
        change = quantile_change(before_ns, after_ns, _P99)
    before = float(change.base[0])
    grown, low, high = (
        None if v is None or not before else 100.0 * float(v[0]) / before
        for v in (change.delta, change.low, change.high)
    )
    status, why = _status(grown or 0.0, low, high, limit.pct, step, f"of the {limit.check}")
    if low is None and limit.check == "p99":
        why = f"{grown or 0.0:+.1f} %, but with fewer than {fewest(_P99)} steps per side, p99 is just the longest"
    return _row(limit, status, why, change, grown, low, high)


def _check(limit: Limit, base: Side, new: Side, step: Step, design: Design, rows: int) -> Row:
    if limit.check in _PACE:
        return _pace(limit, base, new, step, design, rows)
    by, key = limit.table
    columns, totals = [], []
    for side in (base, new):
        table_key = ["step"] if by == "part" else [key]
        ns, _, total = side.samples(by, table_key, design is RUNS, mean=bool(step.uneven))
        picked = ns[:, 0, PARTS.index(key)] if by == "part" and key in PARTS else ns[:, 0].sum(axis=1)
        columns.append(picked[:, None])
        totals.append(total)
    if by != "part" and not any(c.any() for c in columns):
        raise CannotAnswer(
            f"limit {limit.check}: neither side has it", f"`stepscope compare --by {by}` lists what there is"
        )
    of_sides = mean_change if step.uneven else median_change
    change = of_sides(columns[0], columns[1], totals[0], totals[1], design, rows)
    before, after = round(float(change.base[0])), round(float(change.new[0]))
    low, high = (step.pct(None if v is None else float(v[0])) for v in (change.low, change.high))
    grown = step.pct(after - before) or 0.0
    status, why = _status(grown, low, high, limit.pct, step)
    return _row(limit, status, why, change, grown, low, high)


def _row(
    limit: Limit, status: str, why: str, change: Change, grown: float | None, low: float | None, high: float | None
) -> Row:
    before, after = round(float(change.base[0])), round(float(change.new[0]))
    return {
        "check": limit.check,
        "status": status,
        "limit_pct": limit.pct,
        "step_pct": grown,
        "low_step_pct": low,
        "high_step_pct": high,
        "base_ns": before,
        "new_ns": after,
        "diff_ns": after - before,
        "why": why,
    }


def _status(
    grown: float, low: float | None, high: float | None, limit: float, step: Step, of: str = "of the step"
) -> tuple[str, str]:
    """Failed: more than allowed, and no noise. Passed: not more, and a change of the limit would have been seen."""
    if low is None or high is None:
        return OPEN, f"{grown:+.1f} %, but one {step.unit} per side is not enough to tell"
    text = f"{grown:+.1f} % {of} ({low:+.1f} to {high:+.1f} %), limit {limit:g} %"
    if grown > limit and low > 0:
        return FAILED, text
    if high <= limit or (grown <= limit and (high - low) / 2 <= max(limit, FLOOR.value)):
        return PASSED, text
    return OPEN, f"{text}: the noise hides it"
