"""Where did the whole capture go: start-up, steps of every kind, what lies between them?

Every instant that was recorded of a rank is in one row, so that rows sum to the capture to the nanosecond. Steps are
those of all commands; here they come in kinds: steps that do other work or take other time, if they recur, with how
often. A step that is longer than its like by more than the noise is a spike. Steps that were not recorded whole (the
first, which nothing comes before) have a row of their own: they count in no mean. What lies between the ranges of
steps, beyond what usually does, is a checkpoint, an evaluation or the like. `--by step` has a row per step, `--by
content` what start-up and the time between and after steps are made of.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

import numpy as np

from stepscope.derive.rank.data import ranks_of
from stepscope.derive.run.account import RankRun
from stepscope.derive.run.contents import contents, named
from stepscope.derive.run.job import Run, run_of
from stepscope.derive.run.kinds import period_of
from stepscope.derive.run.pace import pace_of
from stepscope.derive.windows.samples import notes_on_left_out
from stepscope.derive.windows.unmarked import why_unmarked
from stepscope.errors import CannotAnswer
from stepscope.intervals import Spans
from stepscope.intervals.arrays import I64
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.range_names import short_range
from stepscope.model.result import OfRank, Result, WindowRow, blank, rows
from stepscope.model.statement import STATEMENT, listed, percent, several, sum_over
from stepscope.model.units import about

STARTUP, STEPS, CUT, BETWEEN, AFTER = "start-up", "steps", "cut steps", "between steps", "after the steps"


class _Split(TypedDict):
    compute_ns: Annotated[int | None, "a compute kernel runs"]
    comm_exposed_ns: Annotated[int | None, "else, communication runs"]
    copy_exposed_ns: Annotated[int | None, "else, a copy or memset runs"]
    idle_ns: Annotated[int | None, "nothing runs on the GPU; these four are null where the GPU was not recorded"]


class _Key(OfRank):
    part: Annotated[
        str, "start-up, steps, cut steps (not recorded whole), between steps, after the steps; they sum to the capture"
    ]
    kind: Annotated[str | None, "of steps: usual, longer or shorter"]
    n: Annotated[int, "how many"]
    every: Annotated[int | None, "it comes with every so many-th step; null where it does not recur so"]
    total_ns: Annotated[int, "all of them together"]
    share_pct: Annotated[float | None, "of the capture"]
    mean_ns: Annotated[int, "of one"]
    p50_ns: Annotated[int, "half are shorter"]
    p90_ns: Annotated[int, "nine in ten are shorter"]
    p99_ns: Annotated[int, "99 in 100 are shorter"]
    max_ns: Annotated[int, "the longest"]
    std_ns: Annotated[int | None, "standard deviation; null for one"]
    spikes: Annotated[int | None, "steps among them that are longer than their like by more than the noise"]
    spike_ns: Annotated[int | None, "by how much longer, together"]


class Row(_Key, _Split):
    made_of: Annotated[str | None, "what start-up and the time between and after steps are made of, the longest first"]


class _StepKey(OfRank):
    index: Annotated[int, "which step, by start"]
    label: Annotated[str, "its text"]
    kind: Annotated[str | None, "usual, longer or shorter; null for a step that is cut"]
    spike: Annotated[bool, "whether it is longer than its like by more than the noise"]
    cut: Annotated[
        str | None, "begin: nothing before it was recorded; end: its end was not; empty: no GPU work; null: whole"
    ]
    start_ns: Annotated[int, "when it begins, what lies between left out"]
    step_ns: Annotated[int, "its length, what lies between left out"]
    between_ns: Annotated[int, "what lies between it and the step before"]


class ByStep(_StepKey, _Split):
    usual_ns: Annotated[int | None, "how long its like take"]


class ByContent(OfRank):
    part: Annotated[str, "start-up, between steps, after the steps"]
    what: Annotated[str, "what the GPU did, or the host while it was idle"]
    range: Annotated[str | None, "range in which the host's own time lies"]
    total_ns: Annotated[int, "how long"]
    share_pct: Annotated[float, "of the part"]


VARIANTS = {"by=step": ByStep, "by=content": ByContent}
#: Shares of a stretch that a cell or a sentence names, and how many.
_NAMED, _MOST_NAMED = 0.05, 3


def run(
    profile: Profile,
    *,
    by: Annotated[Literal["part", "step", "content"], "a row per part of the run, per step, or per content"] = "part",
) -> Result:
    whole = run_of(profile)
    if not whole.ranks:
        raise CannotAnswer("the profile holds no ops, calls or ranges of any rank", "capture steps that use the GPU")
    if by == "step":
        table = rows(ByStep, [row for r in whole.ranks for row in _steps(whole, r)])
    elif by == "content":
        table = rows(ByContent, [row for r in whole.ranks for row in _contents(r)])
    else:
        table = rows(Row, [row for r in whole.ranks for row in _parts(whole, r)])
    summary = _summary(whole) | _program(profile)
    cut = [r.samples for r in whole.ranks if r.samples is not None]
    notes = [*_without_steps(profile, whole), *notes_on_left_out(cut)]
    return Result(table, [_window(r) for r in whole.ranks], summary, notes)


def _window(r: RankRun) -> WindowRow:
    """The capture of a rank, as results show windows."""
    return {
        "rank": r.data.rank,
        "pid": r.data.pid,
        "label": "(whole capture)",
        "index": 0,
        "count": 1,
        "kind": "capture",
        "cpu_start_ns": r.begin,
        "cpu_end_ns": r.end,
        "gpu_start_ns": r.begin if r.on_gpu else None,
        "gpu_end_ns": r.end if r.on_gpu else None,
    }


def _parts(whole: Run, r: RankRun) -> list[Row]:
    table = _stretches(r, STARTUP, r.startup, r.startup_on_host)
    kinds = [whole.kind_of(text) for text in r.label]
    for kind in whole.kinds.kinds if whole.kinds else []:
        chosen = np.array([k for k, of in enumerate(kinds) if of.kind == kind.name], np.int64)
        if len(chosen):
            spikes = [k for k in chosen.tolist() if kinds[k].spike]
            excess = sum(max(0.0, float(r.step_ns[k]) - (kinds[k].usual_ns or 0.0)) for k in spikes)
            row = _row(r, STEPS, r.until[chosen], r.edges[1:][chosen])
            row |= {"kind": kind.name, "every": kind.every, "spikes": len(spikes), "spike_ns": round(excess)}
            table.append(row)
    if len(cut := _cut(whole, r)):
        table.append(_row(r, CUT, r.until[cut], r.edges[1:][cut]))
    some = np.flatnonzero(r.between_ns).astype(np.int64)
    every = period_of(some, np.arange(1, len(r.label)), fewest=2) if len(some) else None
    table += [row | {"every": every} for row in _stretches(r, BETWEEN, r.between, r.between_on_host)]
    return table + _stretches(r, AFTER, r.after)


def _stretches(r: RankRun, part: str, spans: Spans, host: Spans | None = None) -> list[Row]:
    if not len(spans):
        return []
    text = named(r.data, host) if host is not None else None
    made = f"{short_range(text)}: " if text else ""
    made += _made_of(contents(r.data, spans), spans.length())
    return [_row(r, part, spans.start, spans.end) | {"made_of": made}]


def _made_of(made: list[tuple[str, str | None, int]], total: int) -> str:
    by_what: dict[str, int] = {}
    for what, _, ns in made:
        by_what[what] = by_what.get(what, 0) + ns
    largest = sorted(by_what.items(), key=lambda item: -item[1])[:_MOST_NAMED]
    return ", ".join(f"{what} {about(ns)}" for what, ns in largest if ns >= _NAMED * total)


def _row(r: RankRun, part: str, start: I64, end: I64) -> Row:
    length = end - start
    p50, p90, p99 = np.percentile(length, [50, 90, 99])
    return {
        **blank(Row),
        "rank": r.data.rank,
        "pid": r.data.pid,
        "part": part,
        "n": len(length),
        "total_ns": int(length.sum()),
        "share_pct": 100.0 * float(length.sum()) / (r.end - r.begin) if r.end > r.begin else None,
        "mean_ns": round(float(length.mean())),
        "p50_ns": round(p50),
        "p90_ns": round(p90),
        "p99_ns": round(p99),
        "max_ns": int(length.max()),
        "std_ns": round(float(length.std(ddof=1))) if len(length) > 1 else None,
        **_split({name: None if ns is None else int(ns.sum()) for name, ns in r.parts(start, end).items()}),
    }


def _split(ns: dict[str, int | None]) -> _Split:
    return {
        "compute_ns": ns["compute"],
        "comm_exposed_ns": ns["comm_exposed"],
        "copy_exposed_ns": ns["copy_exposed"],
        "idle_ns": ns["idle"],
    }


def _steps(whole: Run, r: RankRun) -> list[ByStep]:
    if r.samples is None:
        return []
    parts = r.parts(r.until, r.edges[1:])
    table: list[ByStep] = []
    for k, text in enumerate(r.label):
        like = whole.kind_of(text)
        table.append(
            {
                "rank": r.data.rank,
                "pid": r.data.pid,
                "index": k,
                "label": text,
                "kind": like.kind,
                "spike": like.spike,
                "cut": r.samples.cut[k],
                "start_ns": int(r.until[k]),
                "step_ns": int(r.step_ns[k]),
                "between_ns": int(r.between_ns[k]),
                **_split({name: None if ns is None else int(ns[k]) for name, ns in parts.items()}),
                "usual_ns": None if like.usual_ns is None else round(like.usual_ns),
            }
        )
    return table


def _contents(r: RankRun) -> list[ByContent]:
    table: list[ByContent] = []
    for part, spans in ((STARTUP, r.startup), (BETWEEN, r.between), (AFTER, r.after)):
        for what, where, ns in contents(r.data, spans):
            table.append(
                {
                    "rank": r.data.rank,
                    "pid": r.data.pid,
                    "part": part,
                    "what": what,
                    "range": where,
                    "total_ns": ns,
                    "share_pct": 100.0 * ns / spans.length(),
                }
            )
    return table


def _without_steps(profile: Profile, whole: Run) -> list[Note]:
    bare = [r for r in whole.ranks if not r.label]
    if not bare:
        return []
    why = why_unmarked(d for d in ranks_of(profile) if d.rank in {r.data.rank for r in bare})
    return [noted("run-without-steps", why=why)]


def _program(profile: Profile) -> dict[str, Any]:
    """Steps of the program that were timed and not recorded, where there are enough to tell its pace."""
    pace = pace_of(profile)
    if pace is None:
        return {}
    paced: dict[str, Any] = {"steps": pace.steps, "usual_ns": round(pace.usual_ns), "mean_ns": round(pace.mean_ns)}
    if pace.longer:
        longer = pace.longer[0]
        paced |= {"longer": longer.count, "longer_ns": round(longer.mean_ns), "every": longer.every}
    return {"program": paced}


# -- the sentence ----------------------------------------------------------------------------------------------------


def _cut(whole: Run, r: RankRun) -> I64:
    """The rank's steps that count in no mean."""
    return np.array([k for k, text in enumerate(r.label) if whole.kind_of(text).kind is None], np.int64)


def _summary(whole: Run) -> dict[str, Any]:
    captured = sum(r.end - r.begin for r in whole.ranks)
    sums = {
        STARTUP: sum(r.startup.length() for r in whole.ranks),
        CUT: sum(int(r.step_ns[_cut(whole, r)].sum()) for r in whole.ranks),
        BETWEEN: sum(r.between.length() for r in whole.ranks),
        AFTER: sum(r.after.length() for r in whole.ranks),
    }
    steps = captured - sum(sums.values())
    summary: dict[str, Any] = {"captured_ns": captured, "steps_ns": steps}
    if whole.kinds is not None:
        spikes = whole.kinds.spike
        summary |= {
            "steps": len(whole.label),
            "mean_ns": round(float(whole.lengths.mean())),
            "std_ns": round(float(whole.lengths.std(ddof=1))) if len(whole.label) > 1 else None,
            "spikes": int(spikes.sum()),
            "spike_ns_per_step": round(float(whole.kinds.excess[spikes].sum()) / len(whole.label)),
        }
        if whole.kinds.drift is not None:
            summary["drift_ns_per_step"] = round(whole.kinds.drift.slope_ns)
    ranks = len(whole.ranks)
    parts = [_kinds(whole)] if whole.kinds is not None else []
    before = next((c for r in whole.ranks for c in [contents(r.data, r.startup)] if c), [])
    made = f", mostly {before[0][0]}" if before and 2 * before[0][2] > sum(ns for _, _, ns in before) else ""
    others = {name: ns for name, ns in sums.items() if ns >= _NAMED * captured or (name == STARTUP and not whole.kinds)}
    parts += [f"{name} {percent(ns, captured)}{made * (name == STARTUP)}" for name, ns in others.items()]
    head = f"{about(captured)} captured{sum_over(ranks)}"
    if whole.kinds is None:
        named = [text.replace(AFTER, "the rest") for text in parts]
        return summary | {STATEMENT: f"Nothing marks steps in the {head}: {'; '.join(named)}."}
    return summary | {STATEMENT: f"Steps take {percent(steps, captured)} of the {head}: {'; '.join(parts)}."}


def _kinds(whole: Run) -> str:
    """`8 steps of 57.1 ms, 4 steps of 2.41 s (every 3), mean 842 ms; 1 is a spike, 60 ms longer than its like`."""
    kinds = whole.kinds
    assert kinds is not None, "only asked of steps"
    named = [
        f"{several(len(k.steps), 'step')} of {about(k.usual_ns)}{f' (every {k.every})' if k.every else ''}"
        for k in kinds.kinds
    ]
    mean = f", {about(float(whole.lengths.mean()))} on average" if len(named) > 1 or kinds.spike.any() else ""
    sentence = listed(named) + mean
    if count := int(kinds.spike.sum()):
        longer = float(kinds.excess[kinds.spike].sum())
        sentence += f"; {several(count, 'spike')}, {about(longer)} longer than {'its' if count == 1 else 'their'} like"
    if kinds.drift is not None:
        way = "grow" if kinds.drift.change_ns > 0 else "shrink"
        sentence += f"; steps {way} by {about(abs(kinds.drift.change_ns))} over the run"
    return sentence
