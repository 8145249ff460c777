"""What does the GPU compute, and what would the same work take if it were done well?

The step's kernels in groups that a person would name: attention, linear layers, norms, loss, optimizer, by pass
(`--by module`: the program's modules, where ranges or stacks tell them; `--by role`: what kernels do; `--by chain`:
runs of kernels that one fused kernel could be). Each with the FLOPs that the model asks for and what was run, the bytes
moved, what bounds it, and the time that good kernels take for the same work in the same numbers on this GPU: as this
trace reaches elsewhere, or as measured on an H200 and scaled. Names and grids are enough; `capture run --with shapes`
tells FLOPs.

`--by budget` goes from the model's FLOPs at the dense peak down to the step. Every row is a loss, and all sum to the
step: precision, kernels below their roof, memory-bound work, what is not fused, layouts, copies, recomputation,
optimizer, exposed communication and copies, idle time by cause.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import polars as pl

from stepscope.analyses.compute.basis import basis_notes
from stepscope.analyses.compute.budget import WHAT, Budget, budget
from stepscope.analyses.compute.fused import chain_rows
from stepscope.analyses.compute.groups import frame, table
from stepscope.derive.accounting.named_window import about_window, sized_window
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.rank.graphs import graph_notes
from stepscope.derive.rank.needs import need_ops
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import Window, Windows
from stepscope.derive.work.step import step_work
from stepscope.errors import CannotAnswer
from stepscope.intervals.arrays import I64
from stepscope.model.capturing import capture_by
from stepscope.model.note import Note
from stepscope.model.profile import Profile
from stepscope.model.result import Col, Result
from stepscope.model.statement import STATEMENT, percent, sum_over, time_of
from stepscope.model.units import about

_WHO = (Col("rank", "rank of the process"), Col("pid", "process id on its host"))
_PHASE = Col("phase", "forward, backward, recomputed, optimizer or other")
_FIGURES = (
    Col("n", "kernels"),
    Col("layers", "repetitions of a sequence of kernels that have some of it; 0 where none was found"),
    Col("total_ns", "sum of their durations"),
    Col("share_pct", "total as a share of the window"),
    Col("good_ns", "time of the same work, in the same numbers, done well on this GPU"),
    Col("good_from", "from where that is known: this trace, reference (an H200), reference scaled; itself: no claim"),
    Col("flops", "what the model asks for, without what a causal mask hides; null without shapes"),
    Col("done_flops", "what was run"),
    Col("moved_bytes", "read and written"),
    Col("bytes_from", "from where bytes are known: recorded, shapes, grid, time (no more than its time allows)"),
    Col("precision", "numbers of most of its products"),
    Col("bound", "compute, memory or latency (neither): what most of it is bound by; null where nothing tells"),
    Col("phase_from", "what the pass is known by: torch ops, ranges, threads, names"),
)
COLUMNS = (*_WHO, Col("part", "attention, linear layers, norms, loss, embedding, optimizer …"), _PHASE, *_FIGURES)
VARIANTS = {
    "by=role": (*_WHO, Col("role", "what the kernels do, by their names"), _PHASE, *_FIGURES),
    "by=module": (
        *_WHO,
        Col("module", "module of the program, numbers of layers left out; null for none"),
        _PHASE,
        *_FIGURES,
    ),
    "by=chain": (
        *_WHO,
        Col("kernels", "roles of the kernels of the chain, in order"),
        _PHASE,
        Col("times", "how often such a chain runs"),
        Col("n", "kernels in one of them"),
        Col("total_ns", "sum of durations, of all of them"),
        Col("share_pct", "total as a share of the window"),
        Col("fused_ns", "one fused kernel each: the bytes of the largest at the memory's rate"),
        Col("moved_bytes", "read and written, of all of them"),
        Col("needed_bytes", "what fused kernels would move"),
    ),
    "by=budget": (
        *_WHO,
        Col("loss", "what stands between the model's FLOPs at the dense peak and the step"),
        Col("total_ns", "its time; all rows sum to the window"),
        Col("share_pct", "share of the window"),
        Col("left_ns", "what the step would take without this row and those below it"),
        Col("what", "what it is"),
    ),
}
By = Literal["part", "role", "module", "chain", "budget"]


def compute(
    profile: Profile,
    window: WindowSpec,
    *,
    by: Annotated[By, "what a row is"] = "part",
) -> Result:
    need_ops(profile)
    chosen = windows(profile, window)
    frames: list[pl.DataFrame] = []
    notes: list[Note] = []
    totals: list[dict[str, Any]] = []
    for data in ranks_of(profile):
        for span in chosen.of(data.rank):
            if not span.gpu_ns:
                continue
            if by == "budget":
                spent = budget(data, span)
                assert spent is not None  # the window has GPU time
                rows = _budget_rows(spent)
                totals.append({"rank": data.rank, **_budget_summary(spent)})
            else:
                work = step_work(data, span)
                ops = frame(data, work, _lengths(data, span), by == "module")
                rows = chain_rows(work, ops, span.gpu_ns) if by == "chain" else table(ops, [by, "phase"], span.gpu_ns)
                totals.append({"rank": data.rank, "index": span.index, **_total(ops)})
                notes += basis_notes(work, data.rank)
            who = (pl.lit(data.rank, pl.Int64).alias("rank"), pl.lit(data.pid, pl.Int64).alias("pid"))
            frames.append(span.named(rows.select(*who, pl.all())))
    columns = COLUMNS if by == "part" else VARIANTS[f"by={by}"]
    shown = chosen.table(columns, pl.concat(frames) if frames else [])
    if by == "module" and not shown["module"].count():
        raise CannotAnswer(
            "neither ranges nor stacks say which module launched a kernel", capture_by("--ranges modules")
        )
    summary: dict[str, Any] = {"total": totals, STATEMENT: _statement(chosen, by, totals, shown)}
    if by == "budget":
        summary["plot"] = True
    return Result(
        shown, chosen.rows(), summary, [*chosen.notes, *graph_notes(profile), *_once(notes)], ranked_by=_ranked(by)
    )


def _ranked(by: str) -> str | None:
    return None if by == "budget" else "total_ns"


def _once(notes: list[Note]) -> list[Note]:
    """Ranks that say the same say it once."""
    return list(dict.fromkeys(notes))


def _lengths(data: RankData, span: Window) -> I64:
    if span.clipped and span.gpu_start_ns is not None and span.gpu_end_ns is not None:
        return data.lengths(span.gpu_start_ns, span.gpu_end_ns)[span.ops]
    length: I64 = (data.end - data.start)[span.ops]
    return length


def _total(ops: pl.DataFrame) -> dict[str, Any]:
    return {"total_ns": int(ops["ns"].sum()), "good_ns": round(float(ops["good"].sum()))}


def _budget_rows(budget: Budget) -> pl.DataFrame:
    rows = [(loss, ns) for loss, ns in budget.rows.items() if ns or loss == "ideal"]
    rest = budget.window_ns
    table_: list[dict[str, Any]] = []
    for loss, ns in reversed(rows):
        rest -= ns
        table_.append(
            {
                "loss": loss,
                "total_ns": ns,
                "share_pct": 100.0 * ns / budget.window_ns,
                "left_ns": rest,
                "what": WHAT.get(loss, "nothing runs: see `stepscope idle --by cause`"),
            }
        )
    return pl.DataFrame(table_[::-1])


def _budget_summary(budget: Budget) -> dict[str, Any]:
    return {
        "window_ns": budget.window_ns,
        "ideal_ns": budget.rows["ideal"],
        "counted_pct": budget.counted_pct,
        "mfu_pct": budget.mfu_pct,
    }


def _statement(chosen: Windows, by: str, totals: list[dict[str, Any]], shown: pl.DataFrame) -> str:
    if not totals:
        return f"Nothing runs on the GPU in {about_window(chosen.spans)}."
    if by == "budget":
        return _of_budget(chosen, totals, shown)
    total, good = (sum(t[key] for t in totals) for key in ("total_ns", "good_ns"))
    ranks = len({t["rank"] for t in totals})
    what = f"Kernels take {about(total)}{sum_over(ranks)} in {sized_window(chosen.spans)}"
    return f"{what}; each done well, in the same numbers, they would take {about(good)} ({percent(good, total)})."


def _of_budget(chosen: Windows, totals: list[dict[str, Any]], shown: pl.DataFrame) -> str:
    """The ideal, and the two largest losses."""
    window, ideal = (sum(t[key] for t in totals) for key in ("window_ns", "ideal_ns"))
    losses = shown.filter(pl.col("loss") != "ideal").group_by("loss").agg(pl.col("total_ns").sum())
    most = losses.sort("total_ns", "loss", descending=[True, False]).head(2).rows()
    ranks = len({t["rank"] for t in totals})
    counted = all((t["counted_pct"] or 0) > 99 for t in totals)
    sure = "" if counted else ", by what products of such kernels reach (FLOPs were not all recorded)"
    sentence = f"The model's FLOPs at the dense peak would take {time_of(ideal, window, ranks)}"
    sentence += f" ({percent(ideal, window)}){sure}"
    largest = " and ".join(f"{name}, {about(ns)} ({percent(ns, window)})" for name, ns in most)
    return f"{sentence}; the largest losses in {about_window(chosen.spans)} are {largest}."
