"""Where did the step go: compute, exposed communication, exposed copies, or nothing at all?

Every instant of a rank's GPU window is exactly one of the four, so the parts sum to the window to the nanosecond.
Communication under compute is hidden: it costs nothing, and is shown beside the parts, not among them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np

from stepscope.analyses.breakdown.tree import TREE_COLUMNS, tree_rows
from stepscope.derive.accounting.named_window import about_window, sized_window
from stepscope.derive.accounting.partition import Partition, partition
from stepscope.derive.rank.data import ranks_of
from stepscope.derive.rank.graphs import graph_notes
from stepscope.derive.rank.needs import bare_notes, need_ops
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.periods import periods
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import Window, Windows
from stepscope.model.profile import Profile
from stepscope.model.result import Col, Result
from stepscope.model.statement import STATEMENT, percent, time_of
from stepscope.model.units import about

_WHO = (Col("rank", "rank of the process"), Col("pid", "process id on its host"))
_STEP = (Col("index", "which instance of the anchor"), Col("label", "its text"))
_PARTS = (
    Col("window_ns", "length of the GPU window"),
    Col("compute_ns", "a compute kernel runs"),
    Col("comm_exposed_ns", "else, communication runs"),
    Col("copy_exposed_ns", "else, a copy or memset runs"),
    Col("idle_ns", "nothing runs"),
    Col("comm_hidden_ns", "communication and compute run together (inside compute_ns)"),
    Col("compute_pct", "share of the window"),
    Col("comm_exposed_pct", "share of the window"),
    Col("copy_exposed_pct", "share of the window"),
    Col("idle_pct", "share of the window"),
)

COLUMNS = (*_WHO, *_PARTS)
#: What a sentence calls the parts that are not compute.
_OTHERS = {"comm_exposed": "exposed communication", "copy_exposed": "exposed copies", "idle": "idle time"}
VARIANTS = {"by=step": (*_WHO, *_STEP, *_PARTS), "tree": TREE_COLUMNS}


def breakdown(
    profile: Profile,
    window: WindowSpec,
    *,
    by: Annotated[Literal["rank", "step"], "one row per rank, or one per step of each rank"] = "rank",
    tree: Annotated[bool, "split the window by the hierarchy of ranges"] = False,
) -> Result:
    need_ops(profile)
    chosen = windows(profile, replace(window, index="all") if by == "step" else window)
    table: list[dict[str, Any]] = []
    split: list[dict[str, Any]] = []
    for data in ranks_of(profile):
        for span in chosen.of(data.rank):
            if span.gpu_start_ns is None or span.gpu_end_ns is None:
                continue
            parts = partition(data, span.gpu_start_ns, span.gpu_end_ns)
            split.append(_row(span, parts))
            table += [{**row, **span.key()} for row in tree_rows(profile, data, span, parts)] if tree else split[-1:]
    columns = TREE_COLUMNS if tree else VARIANTS["by=step"] if by == "step" else COLUMNS
    return Result(
        chosen.table(columns, table),
        chosen.rows(),
        summary={
            **_summary([] if tree else split),
            **_all_steps(profile, chosen, by, tree),
            STATEMENT: _statement(chosen, split),
        },
        notes=[*chosen.notes, *bare_notes(profile), *graph_notes(profile)],
        ranked_by="total_ns" if tree else "window_ns" if by == "step" else None,
    )


def _row(span: Window, parts: Partition) -> dict[str, Any]:
    return {"rank": span.rank, "pid": span.pid, **span.key(), **_figures(parts)}


def _figures(parts: Partition) -> dict[str, Any]:
    figures = {
        "compute": parts.compute.length(),
        "comm_exposed": parts.comm_exposed.length(),
        "copy_exposed": parts.copy_exposed.length(),
        "idle": parts.idle.length(),
    }
    return {
        "window_ns": parts.window_ns,
        **{f"{k}_ns": v for k, v in figures.items()},
        "comm_hidden_ns": parts.comm_hidden_ns,
        **{f"{k}_pct": 100.0 * v / parts.window_ns if parts.window_ns else None for k, v in figures.items()},
    }


def _all_steps(profile: Profile, chosen: Windows, by: str, tree: bool) -> dict[str, Any]:
    """The shares over all steps, beside those of the one shown: steps that alternate are not judged by one of them."""
    shown = {w.rank for w in chosen.spans if w.kind == "step" and w.count > 1}
    if tree or by == "step" or not shown:
        return {}
    table = []
    for data in ranks_of(profile):
        steps = periods(data)
        if data.rank in shown and steps is not None and steps.lengths.any():
            last = int(np.flatnonzero(steps.lengths)[-1]) + 1
            table.append({"steps": last, **_figures(partition(data, int(steps.gpu[0]), int(steps.gpu[last])))})
    if not table:
        return {}
    count = max(row["steps"] for row in table)
    mean = sum(row["window_ns"] / row["steps"] for row in table) / len(table)
    return {"all_steps": {"steps": count, "mean_ns": round(mean), **_summary(table)}}


def _summary(table: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over ranks and steps, weighted by time: what a person quotes of the whole job."""
    total = sum(r["window_ns"] for r in table)
    if not total:
        return {}
    return {
        f"{k}_pct": 100.0 * sum(r[f"{k}_ns"] for r in table) / total
        for k in ("compute", "comm_exposed", "copy_exposed", "idle")
    }


def _statement(chosen: Windows, table: list[dict[str, Any]]) -> str:
    """The share of compute, and what takes the rest, largest first."""
    total = sum(r["window_ns"] for r in table)
    if not total:
        return f"Nothing runs on the GPU in {about_window(chosen.spans)}."
    sums = {name: sum(r[f"{key}_ns"] for r in table) for key, name in _OTHERS.items()}
    rest = sorted((name for name in sums if sums[name]), key=lambda name: -sums[name])
    verb = " take" if rest and rest[0].endswith("s") else " takes"
    others = [
        f"{name}{verb * (k == 0)} {about(sums[name])} ({percent(sums[name], total)})" for k, name in enumerate(rest)
    ]
    compute = sum(r["compute_ns"] for r in table)
    ranks = len({r["rank"] for r in table})
    time = about(compute) if len(table) == 1 else time_of(compute, total, ranks)
    what = f"Compute fills {percent(compute, total)} of {sized_window(chosen.spans)}"
    return f"{what}: {'; '.join([time, *filter(None, [', '.join(others)])])}."
