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

from typing import Annotated, Any, Literal, TypedDict

import polars as pl

from stepscope.analyses.compute.budget import WHAT, Budget, budget
from stepscope.analyses.compute.fused import chain_rows
from stepscope.analyses.compute.groups import frame, table
from stepscope.derive.accounting.named_window import about_window, sized_window
from stepscope.derive.rank.at_once import of_each
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.rank.graphs import graph_notes
from stepscope.derive.rank.needs import need_ops
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import Window, Windows
from stepscope.derive.work.reference import MEASURED_ON
from stepscope.derive.work.rules import MULTIPLYING
from stepscope.derive.work.step import StepWork, step_work
from stepscope.derive.work.twins import with_twins
from stepscope.errors import CannotAnswer
from stepscope.model.capturing import capture_by, capture_with
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.result import OfRank, Result
from stepscope.model.statement import STATEMENT, percent, sum_over
from stepscope.model.units import about


class _Figures(TypedDict):
    n: Annotated[int, "kernels"]
    layers: Annotated[int, "repetitions of a sequence of kernels that have some of it; 0 where none was found"]
    total_ns: Annotated[int, "sum of their durations"]
    share_pct: Annotated[float, "total as a share of the window"]
    good_ns: Annotated[int, "time of the same work, in the same numbers, done well on this GPU"]
    good_from: Annotated[
        str, "from where that is known: this trace, reference (an H200), reference scaled; itself: no claim"
    ]
    flops: Annotated[int | None, "what the model asks for, without what a causal mask hides; null without shapes"]
    done_flops: Annotated[int | None, "what was run"]
    moved_bytes: Annotated[int | None, "read and written"]
    bytes_from: Annotated[
        str, "from where bytes are known: recorded, shapes, grid, time (no more than its time allows)"
    ]
    precision: Annotated[str | None, "type of the numbers in most of its matmuls"]
    bound: Annotated[
        str | None, "compute, memory or latency (neither): what most of it is bound by; null where nothing tells"
    ]
    phase_from: Annotated[str, "what the pass is known by: torch ops, ranges, threads, names"]


class _Key(OfRank):
    part: Annotated[str, "attention, linear layers, norms, loss, embedding, optimizer …"]
    phase: Annotated[str, "forward, backward, recomputed, optimizer or other"]


class Row(_Key, _Figures): ...


class _RoleKey(OfRank):
    role: Annotated[str, "what the kernels do, by their names"]
    phase: Annotated[str, "forward, backward, recomputed, optimizer or other"]


class ByRole(_RoleKey, _Figures): ...


class _ModuleKey(OfRank):
    module: Annotated[str | None, "module of the program, numbers of layers left out; null for none"]
    phase: Annotated[str, "forward, backward, recomputed, optimizer or other"]


class ByModule(_ModuleKey, _Figures): ...


class ByChain(OfRank):
    kernels: Annotated[str, "roles of the kernels of the chain, in order"]
    phase: Annotated[str, "forward, backward, recomputed, optimizer or other"]
    times: Annotated[int, "how often such a chain runs"]
    n: Annotated[int, "kernels in one of them"]
    total_ns: Annotated[int, "sum of durations, of all of them"]
    share_pct: Annotated[float, "total as a share of the window"]
    fused_ns: Annotated[int, "one fused kernel each: the bytes of the largest at the memory's rate"]
    moved_bytes: Annotated[int | None, "read and written, of all of them"]
    needed_bytes: Annotated[int, "what fused kernels would move"]


class _Loss(TypedDict):
    loss: Annotated[str, "what stands between the model's FLOPs at the dense peak and the step"]
    total_ns: Annotated[int, "its time; all rows sum to the window"]
    share_pct: Annotated[float, "share of the window"]
    left_ns: Annotated[int, "what the step would take without this row and those below it"]
    what: Annotated[str, "what it is"]


class ByBudget(OfRank, _Loss): ...


class _Total(TypedDict):
    rank: int
    index: int
    total_ns: int
    good_ns: int


class _Spent(TypedDict):
    rank: int
    window_ns: int
    ideal_ns: int
    counted_pct: float | None
    mfu_pct: float | None


VARIANTS = {"by=role": ByRole, "by=module": ByModule, "by=chain": ByChain, "by=budget": ByBudget}
By = Literal["part", "role", "module", "chain", "budget"]


def compute(
    profile: Profile,
    window: WindowSpec,
    *,
    by: Annotated[By, "what a row is"] = "part",
    eager: Annotated[
        Profile | None, "the same steps without CUDA graphs, in modules: replayed kernels are named by it"
    ] = None,
) -> Result:
    need_ops(profile)
    chosen = windows(profile, window)
    frames: list[pl.DataFrame] = []
    notes: list[Note] = []
    totals: list[_Total] = []
    budgets: list[_Spent] = []

    def of_rank(data: RankData) -> list[_OfWindow]:
        return [_of_window(data, span, by, eager) for span in chosen.of(data.rank) if span.gpu_ns]

    for rows, total, spent, said in (one for found in of_each(profile, ranks_of(profile), of_rank) for one in found):
        frames.append(rows)
        totals += total
        budgets += spent
        notes += said
    row_type = VARIANTS.get(f"by={by}", Row)
    shown = chosen.table(row_type, pl.concat(frames) if frames else [])
    if by == "module" and not shown["module"].count():
        raise CannotAnswer(
            "neither ranges nor stacks say which module launched a kernel", capture_by("--ranges modules")
        )
    summary: dict[str, Any] = {"total": totals or budgets, STATEMENT: _statement(chosen, totals, budgets, shown)}
    if by == "budget":
        summary["plot"] = True
    return Result(
        shown, chosen.rows(), summary, [*chosen.notes, *graph_notes(profile), *_once(notes)], ranked_by=_ranked(by)
    )


#: Of a window: its rows, and its total or its budget, and what it rests on.
_OfWindow = tuple[pl.DataFrame, list[_Total], list[_Spent], list[Note]]


def _of_window(data: RankData, span: Window, by: By, eager: Profile | None) -> _OfWindow:
    if by == "budget":
        spent = budget(data, span)
        assert spent is not None  # the window has GPU time
        return span.of_rank(_budget_rows(spent)), [], [_spent(data.rank, spent)], []
    work = step_work(data, span)
    ops = frame(data, work, span.lengths(data), by == "module")
    if by == "module":
        ops = ops.with_columns(with_twins(data, work.ops, ops["module"], eager))
    rows = chain_rows(work, ops, span.gpu_ns) if by == "chain" else table(ops, [by, "phase"], span.gpu_ns)
    return span.of_rank(rows), [_total(span, ops)], [], basis_notes(work, data.rank)


def _ranked(by: str) -> str | None:
    return None if by == "budget" else "total_ns"


def _once(notes: list[Note]) -> list[Note]:
    """Ranks that say the same say it once."""
    return list(dict.fromkeys(notes))


def _total(span: Window, ops: pl.DataFrame) -> _Total:
    return {
        "rank": span.rank,
        "index": span.index,
        "total_ns": int(ops["ns"].sum()),
        "good_ns": round(float(ops["good"].sum())),
    }


def _budget_rows(budget: Budget) -> pl.DataFrame:
    rows = [(loss, ns) for loss, ns in budget.rows.items() if ns or loss == "ideal"]
    rest = budget.window_ns
    losses: list[_Loss] = []
    for loss, ns in reversed(rows):
        rest -= ns
        losses.append(
            {
                "loss": loss,
                "total_ns": ns,
                "share_pct": 100.0 * ns / budget.window_ns,
                "left_ns": rest,
                "what": WHAT.get(loss, "nothing runs: see `stepscope idle --by cause`"),
            }
        )
    return pl.DataFrame(losses[::-1])


def _spent(rank: int, budget: Budget) -> _Spent:
    return {
        "rank": rank,
        "window_ns": budget.window_ns,
        "ideal_ns": budget.rows["ideal"],
        "counted_pct": budget.counted_pct,
        "mfu_pct": budget.mfu_pct,
    }


def _statement(chosen: Windows, totals: list[_Total], budgets: list[_Spent], shown: pl.DataFrame) -> str:
    if budgets:
        return _of_budget(chosen, budgets, shown)
    if not totals:
        return f"Nothing runs on the GPU in {about_window(chosen.spans)}."
    total, good = sum(t["total_ns"] for t in totals), sum(t["good_ns"] for t in totals)
    ranks = len({t["rank"] for t in totals})
    what = f"Kernels take {about(total)}{sum_over(ranks)} in {sized_window(chosen.spans)}"
    would = f"good kernels would take {about(good)} for the same work in the same precision"
    return f"{what}; {would} ({percent(good, total)})."


def _of_budget(chosen: Windows, budgets: list[_Spent], shown: pl.DataFrame) -> str:
    """The ideal, and the two largest losses."""
    window, ideal = sum(b["window_ns"] for b in budgets), sum(b["ideal_ns"] for b in budgets)
    losses = shown.filter(pl.col("loss") != "ideal").group_by("loss").agg(pl.col("total_ns").sum())
    most = losses.sort("total_ns", "loss", descending=[True, False]).head(2).rows()
    ranks = len({b["rank"] for b in budgets})
    counted = all((b["counted_pct"] or 0) > 99 for b in budgets)
    sure = "" if counted else ", estimated from the rates of such kernels (not all FLOPs were recorded)"
    over = f", summed over {ranks} ranks" if ranks > 1 else ""
    sentence = f"The model's FLOPs at the dense peak would take {about(ideal)} of {about(window)}{over}"
    sentence += f" ({percent(ideal, window)}){sure}"
    largest = " and ".join(f"{name}, {about(ns)} ({percent(ns, window)})" for name, ns in most)
    return f"{sentence}; the largest losses in {about_window(chosen.spans)} are {largest}."


def basis_notes(work: StepWork, rank: int) -> list[Note]:
    """Which of shapes, grids and GPU the figures rest on."""
    if work.gpu is None:
        return [noted("work-gpu-unknown", rank=rank)]
    notes = []
    multiplying = work.kinds.are(*MULTIPLYING)
    if multiplying.any() and not (multiplying & work.done.known).any():
        notes.append(noted("work-without-shapes", capture_with=capture_with("shapes")))
    if work.gpu.name != MEASURED_ON:
        notes.append(noted("work-scaled", measured_on=MEASURED_ON, name=work.gpu.name))
    return notes
