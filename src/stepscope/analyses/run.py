"""Where did the whole capture go: start-up, steps of every kind, what lies between them?

Every instant that was recorded of a rank is in one row, so that rows sum to the capture to the nanosecond. Steps are
those of all commands; here they come in kinds: steps that do other work or take other time, if they recur, with how
often. A step that is longer than its like by more than the noise is a spike. Steps that were not recorded whole (the
first, which nothing comes before) have a row of their own: they count in no mean. What lies between the ranges of
steps, beyond what usually does, is a checkpoint, an evaluation or the like. `--by step` has a row per step, `--by
content` what start-up and the time between and after steps are made of.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

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
from stepscope.model.result import Col, Result, rows
from stepscope.model.statement import STATEMENT, listed, percent, several, sum_over
from stepscope.model.units import about

STARTUP, STEPS, CUT, BETWEEN, AFTER = "start-up", "steps", "cut steps", "between steps", "after the steps"

_WHO = (Col("rank", "rank of the process"), Col("pid", "process id on its host"))
_SPLIT = (
    Col("compute_ns", "a compute kernel runs"),
    Col("comm_exposed_ns", "else, communication runs"),
    Col("copy_exposed_ns", "else, a copy or memset runs"),
    Col("idle_ns", "nothing runs on the GPU; these four are null where the GPU was not recorded"),
)
COLUMNS = (
    *_WHO,
    Col(
        "part",
        "start-up, steps, cut steps (not recorded whole), between steps, after the steps; they sum to the capture",
    ),
    Col("kind", "of steps: usual, longer or shorter"),
    Col("n", "how many"),
    Col("every", "it comes with every so many-th step; null where it does not recur so"),
    Col("total_ns", "all of them together"),
    Col("share_pct", "of the capture"),
    Col("mean_ns", "of one"),
    Col("p50_ns", "half are shorter"),
    Col("p90_ns", "nine in ten are shorter"),
    Col("p99_ns", "99 in 100 are shorter"),
    Col("max_ns", "the longest"),
    Col("std_ns", "standard deviation; null for one"),
    Col("spikes", "steps among them that are longer than their like by more than the noise"),
    Col("spike_ns", "by how much longer, together"),
    *_SPLIT,
    Col("made_of", "what start-up and the time between and after steps are made of, the longest first"),
)
VARIANTS = {
    "by=step": (
        *_WHO,
        Col("index", "which step, by start"),
        Col("label", "its text"),
        Col("kind", "usual, longer or shorter; null for a step that is cut"),
        Col("spike", "whether it is longer than its like by more than the noise"),
        Col("cut", "begin: nothing before it was recorded; end: its end was not; empty: no GPU work; null: whole"),
        Col("start_ns", "when it begins, what lies between left out"),
        Col("step_ns", "its length, what lies between left out"),
        Col("between_ns", "what lies between it and the step before"),
        *_SPLIT,
        Col("usual_ns", "how long its like take"),
    ),
    "by=content": (
        *_WHO,
        Col("part", "start-up, between steps, after the steps"),
        Col("what", "what the GPU did, or the host while it was idle"),
        Col("range", "range in which the host's own time lies"),
        Col("total_ns", "how long"),
        Col("share_pct", "of the part"),
    ),
}
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
    table: list[dict[str, Any]] = []
    for r in whole.ranks:
        table += _steps(whole, r) if by == "step" else _contents(r) if by == "content" else _parts(whole, r)
    columns = COLUMNS if by == "part" else VARIANTS[f"by={by}"]
    nothing = dict.fromkeys(c.name for c in columns)
    table = [nothing | row for row in table]
    summary = _summary(whole) | _program(profile)
    cut = [r.samples for r in whole.ranks if r.samples is not None]
    notes = [*_without_steps(profile, whole), *notes_on_left_out(cut)]
    return Result(rows(columns, table), [_window(r) for r in whole.ranks], summary, notes)


def _window(r: RankRun) -> dict[str, Any]:
    """The capture of a rank, as results show windows."""
    where = {"label": "(whole capture)", "index": 0, "count": 1, "kind": "capture"}
    gpu = {"gpu_start_ns": r.begin if r.on_gpu else None, "gpu_end_ns": r.end if r.on_gpu else None}
    return {"rank": r.data.rank, "pid": r.data.pid, **where, "cpu_start_ns": r.begin, "cpu_end_ns": r.end, **gpu}


def _parts(whole: Run, r: RankRun) -> list[dict[str, Any]]:
    who = {"rank": r.data.rank, "pid": r.data.pid}
    table = [*_stretches(r, STARTUP, r.startup, r.startup_on_host)]
    kinds = [whole.kind_of(text) for text in r.label]
    for kind in whole.kinds.kinds if whole.kinds else []:
        chosen = np.array([k for k, of in enumerate(kinds) if of.kind == kind.name], np.int64)
        if len(chosen):
            spikes = [k for k in chosen.tolist() if kinds[k].spike]
            excess = sum(max(0.0, float(r.step_ns[k]) - (kinds[k].usual_ns or 0.0)) for k in spikes)
            row = _figures(r, r.until[chosen], r.edges[1:][chosen])
            named = {"part": STEPS, "kind": kind.name, "every": kind.every}
            table.append(named | {"spikes": len(spikes), "spike_ns": round(excess)} | row)
    cut = np.array([k for k, of in enumerate(kinds) if of.kind is None], np.int64)
    if len(cut):
        table.append({"part": CUT, **_figures(r, r.until[cut], r.edges[1:][cut])})
    some = np.flatnonzero(r.between_ns).astype(np.int64)
    every = period_of(some, np.arange(1, len(r.label)), fewest=2) if len(some) else None
    table += [row | {"every": every} for row in _stretches(r, BETWEEN, r.between, r.between_on_host)]
    table += _stretches(r, AFTER, r.after)
    return [who | row for row in table]


def _stretches(r: RankRun, part: str, spans: Spans, host: Spans | None = None) -> list[dict[str, Any]]:
    if not len(spans):
        return []
    text = named(r.data, host) if host is not None else None
    made = f"{short_range(text)}: " if text else ""
    made += _made_of(contents(r.data, spans), spans.length())
    return [{"part": part, **_figures(r, spans.start, spans.end), "made_of": made}]


def _made_of(made: list[tuple[str, str | None, int]], total: int) -> str:
    by_what: dict[str, int] = {}
    for what, _, ns in made:
        by_what[what] = by_what.get(what, 0) + ns
    largest = sorted(by_what.items(), key=lambda item: -item[1])[:_MOST_NAMED]
    return ", ".join(f"{what} {about(ns)}" for what, ns in largest if ns >= _NAMED * total)


def _figures(r: RankRun, start: I64, end: I64) -> dict[str, Any]:
    length = end - start
    p50, p90, p99 = np.percentile(length, [50, 90, 99])
    return {
        "n": len(length),
        "total_ns": int(length.sum()),
        "share_pct": 100.0 * float(length.sum()) / (r.end - r.begin) if r.end > r.begin else None,
        "mean_ns": round(float(length.mean())),
        "p50_ns": round(p50),
        "p90_ns": round(p90),
        "p99_ns": round(p99),
        "max_ns": int(length.max()),
        "std_ns": round(float(length.std(ddof=1))) if len(length) > 1 else None,
        **{f"{name}_ns": None if ns is None else int(ns.sum()) for name, ns in r.parts(start, end).items()},
    }


def _steps(whole: Run, r: RankRun) -> list[dict[str, Any]]:
    if r.samples is None:
        return []
    parts = r.parts(r.until, r.edges[1:])
    table = []
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
                **{f"{name}_ns": None if ns is None else int(ns[k]) for name, ns in parts.items()},
                "usual_ns": None if like.usual_ns is None else round(like.usual_ns),
            }
        )
    return table


def _contents(r: RankRun) -> list[dict[str, Any]]:
    table = []
    for part, spans in ((STARTUP, r.startup), (BETWEEN, r.between), (AFTER, r.after)):
        for what, where, ns in contents(r.data, spans):
            row = {"part": part, "what": what, "range": where, "total_ns": ns, "share_pct": 100.0 * ns / spans.length()}
            table.append({"rank": r.data.rank, "pid": r.data.pid, **row})
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
    told: dict[str, Any] = {"steps": pace.steps, "usual_ns": round(pace.usual_ns), "mean_ns": round(pace.mean_ns)}
    if pace.longer:
        longer = pace.longer[0]
        told |= {"longer": longer.count, "longer_ns": round(longer.mean_ns), "every": longer.every}
    return {"program": told}


# -- the sentence ----------------------------------------------------------------------------------------------------


def _summary(whole: Run) -> dict[str, Any]:
    captured = sum(r.end - r.begin for r in whole.ranks)
    sums = {
        STARTUP: sum(r.startup.length() for r in whole.ranks),
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
    """`8 of 57.1 ms, 4 of 2.41 s (every 3), mean 842 ms; 1 is a spike, 60 ms longer than its like`."""
    kinds = whole.kinds
    assert kinds is not None, "only asked of steps"
    named = [f"{len(k.steps)} of {about(k.usual_ns)}{f' (every {k.every})' if k.every else ''}" for k in kinds.kinds]
    mean = f", {about(float(whole.lengths.mean()))} in the mean" if len(named) > 1 or kinds.spike.any() else ""
    said = listed(named) + mean
    if count := int(kinds.spike.sum()):
        longer = float(kinds.excess[kinds.spike].sum())
        said += f"; {several(count, 'spike')}, {about(longer)} longer than {'its' if count == 1 else 'their'} like"
    if kinds.drift is not None:
        way = "grow" if kinds.drift.change_ns > 0 else "shrink"
        said += f"; steps {way} by {about(abs(kinds.drift.change_ns))} over the run"
    return said
