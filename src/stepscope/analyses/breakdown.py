"""Where did the step go: compute, exposed communication, exposed copies, or idle time?

Every instant of a rank's GPU window is exactly one of the four, so the parts sum to the window to the nanosecond.
Communication under compute is hidden: it costs nothing, and is shown beside the parts, not among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypedDict, get_args

import numpy as np
import polars as pl

from stepscope.derive.accounting.named_window import about_window, sized_window
from stepscope.derive.accounting.owners import owners
from stepscope.derive.accounting.partition import Partition, partition
from stepscope.derive.accounting.places import NO_RANGE, Places, by_depth, places_of
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.rank.graphs import graph_notes
from stepscope.derive.rank.needs import bare_notes, need_ops
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.periods import periods
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import Window, Windows
from stepscope.intervals.arrays import I64, NONE
from stepscope.model.nesting import depths
from stepscope.model.profile import Profile
from stepscope.model.result import OfRank, Result
from stepscope.model.statement import STATEMENT, percent, time_of
from stepscope.model.units import about


class TreeRow(TypedDict):
    rank: Annotated[int, "rank of the process"]
    pid: Annotated[int | None, "process id on its host"]
    depth: Annotated[int, "depth in the hierarchy, 0 at the top"]
    path: Annotated[str, "texts of the ranges from the top, joined by ` > `"]
    range: Annotated[str, "text of the range; (no range) for what was launched outside any"]
    total_ns: Annotated[int, "time that belongs to it and to the ranges in it"]
    compute_ns: Annotated[int, "a compute kernel runs"]
    comm_exposed_ns: Annotated[int, "else, communication runs"]
    copy_exposed_ns: Annotated[int, "else, a copy or memset runs"]
    idle_ns: Annotated[int, "nothing runs"]


Part = Literal["compute_ns", "comm_exposed_ns", "copy_exposed_ns", "idle_ns"]
#: The parts of every row, which sum to its time.
PARTS: tuple[Part, ...] = get_args(Part)


def tree_rows(profile: Profile, data: RankData, span: Window, parts: Partition) -> list[TreeRow]:
    """Rows of the tree, depth first, the largest child first."""
    place, places = data.once(_places)
    count = len(places.parent)
    index = np.full(data.ranges.height + 1, NONE, dtype=np.int64)  # what is in no range is at the last place of all
    index[data.own_ranges] = np.arange(len(data.own_ranges))
    total = np.zeros((count, len(PARTS)), np.int64)
    there = np.zeros(count, dtype=bool)
    for column, (ops, _, length) in enumerate(owners(data, parts)):
        ranges = np.full(len(ops), NONE, dtype=np.int64)
        ranges[ops != NONE] = data.enclosing(ops[ops != NONE])
        at = place[index[ranges]]
        np.add.at(total[:, column], at, length)
        there[at] = True
    for level in reversed(by_depth(places.depth)[1:]):
        up = places.parent[level]
        np.add.at(total, up, total[level])
        there[up[there[level]]] = True
    sums = total.sum(axis=1)
    order = np.argsort(places.order(sums))
    paths = data.once(_paths)
    return [
        {
            "rank": data.rank,
            "pid": data.pid,
            "depth": int(places.depth[at]),
            "path": paths[at],
            "range": places.texts[at],
            "total_ns": int(sums[at]),
            "compute_ns": int(total[at, 0]),
            "comm_exposed_ns": int(total[at, 1]),
            "copy_exposed_ns": int(total[at, 2]),
            "idle_ns": int(total[at, 3]),
        }
        for at in order[there[order]].tolist()
    ]


def _places(data: RankData) -> tuple[I64, Places]:
    """The place of each own range, and at the end that of what is in none."""
    rows = data.own_ranges
    ids, name = np.unique(data.ranges["name"].to_numpy()[rows], return_inverse=True)
    names = pl.concat([data.profile.names.gather(ids), pl.Series([NO_RANGE])])
    parent = np.append(data.own_parents, NONE)
    return places_of(parent, depths(parent), np.append(name.reshape(-1), len(ids)), names)


def _paths(data: RankData) -> list[str]:
    return data.once(_places)[1].paths()


class _Step(TypedDict):
    index: Annotated[int, "which instance of the anchor"]
    label: Annotated[str, "its text"]


class _Parts(TypedDict):
    window_ns: Annotated[int, "length of the GPU window"]
    compute_ns: Annotated[int, "a compute kernel runs"]
    comm_exposed_ns: Annotated[int, "else, communication runs"]
    copy_exposed_ns: Annotated[int, "else, a copy or memset runs"]
    idle_ns: Annotated[int, "nothing runs"]
    comm_hidden_ns: Annotated[int, "communication and compute run together (inside compute_ns)"]
    compute_pct: Annotated[float | None, "share of the window"]
    comm_exposed_pct: Annotated[float | None, "share of the window"]
    copy_exposed_pct: Annotated[float | None, "share of the window"]
    idle_pct: Annotated[float | None, "share of the window"]


class Row(OfRank, _Parts): ...


#: What a sentence calls the parts that are not compute.
_OTHERS: dict[Part, str] = {
    "comm_exposed_ns": "exposed communication",
    "copy_exposed_ns": "exposed copies",
    "idle_ns": "idle time",
}


class ByStep(OfRank, _Step, _Parts): ...


VARIANTS = {"by=step": ByStep, "tree": TreeRow}


class _AllSteps(_Parts):
    steps: int


def breakdown(
    profile: Profile,
    window: WindowSpec,
    *,
    by: Annotated[Literal["rank", "step"], "one row per rank, or one per step of each rank"] = "rank",
    tree: Annotated[bool, "split the window by the hierarchy of ranges"] = False,
) -> Result:
    need_ops(profile)
    chosen = windows(profile, replace(window, index="all") if by == "step" else window)
    tree_table: list[TreeRow] = []
    split: list[Row] = []
    for data in ranks_of(profile):
        for span in chosen.of(data.rank):
            if span.gpu_start_ns is None or span.gpu_end_ns is None:
                continue
            parts = partition(data, span.gpu_start_ns, span.gpu_end_ns)
            split += span.keyed([{**span.who, **_figures(parts)}])
            tree_table += span.keyed(tree_rows(profile, data, span, parts)) if tree else []
    row_type: type = VARIANTS.get(f"by={by}", Row)
    return Result(
        chosen.table(TreeRow, tree_table) if tree else chosen.table(row_type, split),
        chosen.rows(),
        summary={
            **_summary([] if tree else split),
            **_all_steps(profile, chosen, by, tree),
            STATEMENT: _statement(chosen, split),
        },
        notes=[*chosen.notes, *bare_notes(profile), *graph_notes(profile)],
        ranked_by="total_ns" if tree else "window_ns" if by == "step" else None,
    )


def _figures(parts: Partition) -> _Parts:
    spans = (parts.compute, parts.comm_exposed, parts.copy_exposed, parts.idle)
    compute, comm, copies, idle = (part.length() for part in spans)
    shares = [100.0 * ns / parts.window_ns if parts.window_ns else None for ns in (compute, comm, copies, idle)]
    return {
        "window_ns": parts.window_ns,
        "compute_ns": compute,
        "comm_exposed_ns": comm,
        "copy_exposed_ns": copies,
        "idle_ns": idle,
        "comm_hidden_ns": parts.comm_hidden_ns,
        "compute_pct": shares[0],
        "comm_exposed_pct": shares[1],
        "copy_exposed_pct": shares[2],
        "idle_pct": shares[3],
    }


def _all_steps(profile: Profile, chosen: Windows, by: str, tree: bool) -> dict[str, Any]:
    """The shares over all steps, beside those of the one shown: steps that alternate are not judged by one of them."""
    shown = {w.rank for w in chosen.spans if w.kind == "step" and w.count > 1}
    if tree or by == "step" or not shown:
        return {}
    table: list[_AllSteps] = []
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


def _summary(table: Sequence[_Parts]) -> dict[str, Any]:
    """Means over ranks and steps, weighted by time: what a person quotes of the whole job."""
    total = sum(r["window_ns"] for r in table)
    if not total:
        return {}
    return {f"{part.removesuffix('_ns')}_pct": 100.0 * sum(r[part] for r in table) / total for part in PARTS}


def _statement(chosen: Windows, table: list[Row]) -> str:
    """The share of compute, and what takes the rest, largest first."""
    total = sum(r["window_ns"] for r in table)
    if not total:
        return f"Nothing runs on the GPU in {about_window(chosen.spans)}."
    sums = {name: sum(r[part] for r in table) for part, name in _OTHERS.items()}
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
