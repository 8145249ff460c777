"""What did torch.compile make of the step: regions, graph breaks, recompiles, compiled share of GPU time?

A region is one run of a compiled frame, a graph one run of a compiled graph. A region with a region inside is one
graph break: that is how torch goes on after one. A break after which nothing compiled runs leaves no trace, so `breaks`
can be too low, never too high. `--log` takes the text that `TORCH_LOGS=graph_breaks,recompiles` wrote, which has them
all with their reasons, also without a profile: `stepscope compile --log run.log --against before.log`. `capture run`
collects it beside the capture (`compile/rank0.log`), where it is found without `--log`.

GPU time is credited by the launch: in a compiled graph, in a region but in no graph (what runs at a break), or eager.
Idle time that the host caused is split in the same way, and by compilation; the parts sum to `idle_ns`. From this alone
comes the verdict: `host-bound` where the GPU idled longer while the host was inside regions and graphs than compiled
kernels ran (many tiny graphs do that), `breaks exposed` where it idled between graphs, `breaks hidden` where it did
not, `whole` without breaks. Names of kernels alone leave it `undecided`: products and convolutions of compiled code
have the names that they have elsewhere, so that `compiled_pct` is the least that is compiled, and a gate on it may exit
3.

The summary's `mode` is what the program asked of torch.compile, as `capture run` heard it; else what the trace gives
away (CUDA graphs, kernels of tuned templates), or `unknown`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np

from stepscope.analyses.compile import gate as compile_gate
from stepscope.analyses.compile.columns import ByRegion, ByStep, Counts, Gpu, Idle, Row
from stepscope.analyses.compile.gate import UNDECIDED, statement
from stepscope.analyses.compile.log import LoggedRow, log_beside, log_result
from stepscope.analyses.compile.mode import compile_mode
from stepscope.derive.accounting.partition import partition
from stepscope.derive.host.idle_causes import QUEUE, TAIL, UNLINKED, causes
from stepscope.derive.pytorch.compiled import INDUCTOR, Compiled, compiled
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.rank.graphs import graph_notes
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import WHOLE, Window
from stepscope.errors import BadInput, CannotAnswer
from stepscope.intervals import covered, union
from stepscope.intervals.arrays import I64, NONE, one_of
from stepscope.model.capturing import capture_with
from stepscope.model.note import noted
from stepscope.model.option import Effect
from stepscope.model.profile import Profile
from stepscope.model.result import Result, blank
from stepscope.model.statement import STATEMENT

VARIANTS = {"by=step": ByStep, "by=region": ByRegion, "by=reason": LoggedRow}

_Summed = Literal["regions", "graphs", "breaks", "compiles", "compiled_ns", "between_ns", "eager_ns"]
#: What the summary has over all ranks and windows.
_SUMMED: tuple[_Summed, ...] = get_args(_Summed)
By = Literal["window", "step", "region", "reason"]


def compile(
    profile: Profile | None,
    window: WindowSpec,
    *,
    by: Annotated[By | None, "one row per window, step, region, or reason in the log (without a profile)"] = None,
    log: Annotated[
        Path | None, "what TORCH_LOGS=graph_breaks,recompiles wrote, or the folder of a capture", Effect.READS
    ] = None,
    against: Annotated[Path | None, "such a log of another run, to compare with", Effect.READS] = None,
    gate: Annotated[str | None, "exit 1 unless so, for CI: breaks<=0,recompiles<=2,compiled>=80"] = None,
) -> Result:
    conditions = compile_gate.parse(gate) if gate is not None else []
    result, log_summary = _answer(profile, window, by, log, against)
    compile_gate.require(result, conditions, log_summary)
    return result


def _answer(
    profile: Profile | None, window: WindowSpec, by: By | None, log: Path | None, against: Path | None
) -> tuple[Result, dict[str, Any] | None]:
    """The answer, and what the log says in sum."""
    if against is not None and log is None:
        raise BadInput("--against compares two logs", "give --log too")
    log = log_beside(log if log is not None else profile.folders[0] if profile is not None else None, given=log)
    if by == "reason" and log is None:
        raise BadInput("--by reason takes reasons from a log", "give --log FILE")
    of_log = log_result(log, against) if log is not None else None
    if profile is None or by == "reason":
        if of_log is None:
            raise BadInput("no profile and no log given", "name a trace, or give --log FILE")
        return of_log, of_log.summary
    result = _ask(profile, window, by or "window")
    if of_log is not None:
        result.summary["log"] = of_log.summary
        result.notes += of_log.notes
    return result, of_log.summary if of_log is not None else None


def _ask(profile: Profile, window: WindowSpec, by: str) -> Result:
    by_rank = {data.rank: compiled(profile, data) for data in ranks_of(profile)}
    named = _by_name(profile, by_rank)
    notes = [noted("compile-not-annotated")] if named else []
    chosen = windows(profile, replace(window, index="all") if by == "step" else window)
    table: list[Row] = []
    regions: list[ByRegion] = []
    for data in ranks_of(profile):
        for span in chosen.of(data.rank):
            marks = by_rank[data.rank]
            if by == "region":
                regions += span.keyed(_regions(data, span, marks))
            else:
                table += span.keyed([_row(profile, data, span, marks, named)])
    shown = chosen.table(ByRegion, regions) if by == "region" else chosen.table(VARIANTS.get(f"by={by}", Row), table)
    summary = {} if by == "region" else _summary(table)
    if by != "region":
        summary[STATEMENT] = statement(table, summary["compiled_pct"])
        if named:
            summary["compiled_is"] = "at least"
    if by != "region" and (named or any(marks.any for marks in by_rank.values())):
        summary |= compile_mode(profile, by_rank)
    notes = [*chosen.notes, *notes, *graph_notes(profile)]
    ranked = {"region": "host_ns", "step": "idle_ns"}.get(by)
    return Result(shown, chosen.rows(), summary, notes, ranked_by=ranked)


def _by_name(profile: Profile, by_rank: dict[int, Compiled]) -> bool:
    """Whether kernel names are all there is to go by; an error where there is nothing."""
    if any(marks.any for marks in by_rank.values()):
        return False
    ids = profile.ops["name"].unique()  # first: reading the ops adds their names
    if profile.names.gather(ids).str.contains(INDUCTOR).any():
        return True
    if not any(marks.annotated for marks in by_rank.values()):
        raise CannotAnswer(
            "the profile has no torch ops, so nothing shows what was compiled",
            f"{capture_with('pytorch')}; or give --log",
        )
    return False


def _launch(data: RankData, ops: I64) -> tuple[I64, I64]:
    """Thread and start of the call that launched each op; NONE for the thread where it is unknown."""
    tid = np.full(len(ops), NONE, dtype=np.int64)
    linked = data.launch[ops] != NONE
    tid[linked] = data.calls["tid"].to_numpy()[data.launch[ops[linked]]]
    return tid, data.launched_at[ops]


def _host_span(data: RankData, span: Window) -> tuple[int, int]:
    """The window on the host: all of it, or as chosen, else from its first launch to its last."""
    if span.label == WHOLE:
        return np.iinfo(np.int64).min, np.iinfo(np.int64).max
    if span.cpu_start_ns is not None and span.cpu_end_ns is not None:
        return span.cpu_start_ns, span.cpu_end_ns
    at = data.launched_at[span.ops]
    return (int(at.min()), int(at.max()) + 1) if len(at) else (0, 0)


def _row(profile: Profile, data: RankData, span: Window, marks: Compiled, named: bool) -> Row:
    row: Row = {**blank(Row), **span.who}
    if not named:
        row = {**row, **_counts(marks, *_host_span(data, span))}
    if len(span.ops) == 0:
        return row
    row = {**row, **_gpu(profile, data, span, marks, named)}
    if row["graphs"] and row["compiled_ns"] is not None:
        row["gpu_per_graph_ns"] = round(row["compiled_ns"] / row["graphs"])
    if named:
        row["verdict"] = UNDECIDED
    elif data.calls.height:
        row = {**row, **_idle(data, span, marks)}
        row["verdict"] = _verdict(row)
    return row


def _counts(marks: Compiled, lo: int, hi: int) -> Counts:
    mine = marks.regions.begun(lo, hi)
    later = mine & (marks.regions.compile > 0)
    return {
        "regions": int(mine.sum()),
        "graphs": int(marks.graphs.begun(lo, hi).sum()),
        "breaks": int((mine & marks.breaks).sum()),
        "recompiled": len(np.unique(marks.regions.frame[later])),
        "compiles": int(marks.compiles.begun(lo, hi).sum()),
        "compiling_ns": union(marks.compiling.start, marks.compiling.end).clip(lo, hi).length(),
    }


def _gpu(profile: Profile, data: RankData, span: Window, marks: Compiled, named: bool) -> Gpu:
    length = span.lengths(data)
    if named:
        graph = profile.names_with(INDUCTOR)[data.name[span.ops]]
        between = np.zeros(len(graph), dtype=bool)
    else:
        tid, at = _launch(data, span.ops)
        graph = marks.inside.nesting.enclosing(tid, at) != NONE
        between = ~graph & (marks.regions.nesting.enclosing(tid, at) != NONE)
    total = int(length.sum())
    parts = [int(length[chosen].sum()) for chosen in (graph, between)]
    return {
        "compiled_ns": parts[0],
        "between_ns": None if named else parts[1],
        "eager_ns": total - sum(parts),
        "compiled_pct": 100.0 * parts[0] / total if total else None,
    }


def _idle(data: RankData, span: Window, marks: Compiled) -> Idle:
    assert span.gpu_start_ns is not None and span.gpu_end_ns is not None
    idle = partition(data, span.gpu_start_ns, span.gpu_end_ns).idle
    pieces = causes(data, idle)
    hosts = ~one_of(pieces.cause, (QUEUE, TAIL, UNLINKED))
    parts = np.zeros(4, dtype=np.int64)
    for tid in np.unique(pieces.tid[hosts]):
        mine = hosts & (pieces.tid == tid)
        start, end = pieces.start[mine], pieces.end[mine]
        parts += [int(covered(start, end, spans).sum()) for spans in marks.thread_parts(int(tid))]
    host_ns = int((pieces.end - pieces.start)[hosts].sum())
    return {
        "idle_ns": idle.length(),
        "idle_compile_ns": int(parts[0]),
        "idle_graph_ns": int(parts[1]),
        "idle_between_ns": int(parts[2]),
        "idle_capture_ns": int(parts[3]),
        "idle_eager_ns": host_ns - int(parts.sum()),
        "idle_other_ns": idle.length() - host_ns,
    }


def _verdict(row: Row) -> str:
    if not row["regions"] and not row["graphs"]:
        return "not compiled"
    if (row["idle_graph_ns"] or 0) + (row["idle_between_ns"] or 0) > (row["compiled_ns"] or 0):
        return "host-bound"
    if row["breaks"]:
        return "breaks exposed" if row["idle_between_ns"] else "breaks hidden"
    return "whole"


def _summary(table: list[Row]) -> dict[str, Any]:
    """Sums over ranks and windows; null where no row knows."""
    summary: dict[str, Any] = {"windows": len(table)}
    for name in _SUMMED:
        values = [value for r in table if (value := r[name]) is not None]
        summary[name] = sum(values) if values else None
    total = sum(summary[k] or 0 for k in ("compiled_ns", "between_ns", "eager_ns"))
    summary["compiled_pct"] = 100.0 * summary["compiled_ns"] / total if total else None
    return summary


def _regions(data: RankData, span: Window, marks: Compiled) -> list[ByRegion]:
    """One row per frame and compile id, and one for what was launched in no region."""
    regions, lo_hi = marks.regions, _host_span(data, span)
    begun = regions.begun(*lo_hi)
    tid, at = _launch(data, span.ops)
    within = regions.nesting.enclosing(tid, at)
    graph = marks.inside.nesting.enclosing(tid, at) != NONE
    runs = marks.graphs.begun(*lo_hi)
    holder = regions.nesting.enclosing(marks.graphs.tid, marks.graphs.start)
    length = span.lengths(data)
    table: list[ByRegion] = []
    for frame, version in sorted(set(zip(regions.frame.tolist(), regions.compile.tolist(), strict=True))):
        rows_of = np.flatnonzero((regions.frame == frame) & (regions.compile == version))
        mine = rows_of[begun[rows_of]]
        launched = np.isin(within, rows_of)
        if len(mine) or launched.any():
            table.append(
                {
                    **span.who,
                    "region": f"{frame}/{version}" if frame != NONE else "(unnamed)",
                    "n": len(mine),
                    "host_ns": int((regions.end - regions.start)[mine].sum()),
                    "graphs": int((runs & np.isin(holder, rows_of)).sum()),
                    "breaks": int(marks.breaks[mine].sum()),
                    "compiled_ns": int(length[launched & graph].sum()),
                    "other_ns": int(length[launched & ~graph].sum()),
                }
            )
    rest = within == NONE
    graphs = int((runs & (holder == NONE)).sum())
    if rest.any() or graphs:
        table.append(
            {
                **span.who,
                "region": "(no region)",
                "n": 0,
                "host_ns": 0,
                "graphs": graphs,
                "breaks": 0,
                "compiled_ns": int(length[rest & graph].sum()),
                "other_ns": int(length[rest & ~graph].sum()),
            }
        )
    return table
