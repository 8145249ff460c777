"""Which single communication ops cost the step most, and what was compute doing instead?

The worst ops by exposed time, each with the range that launched it. While an op is exposed the rank computes nothing:
either the next compute kernel was already launched and something held it (`held_ns`: an event, stream order, this very
op), or the host had not launched it yet (`starved_ns`). The two sum to the exposed time, and call for different cures.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

import numpy as np
import polars as pl

from stepscope.derive.accounting.exposure import CommOps, comm_ops
from stepscope.derive.accounting.named_window import about_window
from stepscope.derive.comm.outside import outside_notes
from stepscope.derive.rank.data import COMPUTE, RankData, ranks_of
from stepscope.derive.rank.graphs import graph_notes
from stepscope.derive.rank.needs import bare_notes, need_communication
from stepscope.derive.rank.pattern import check_pattern
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.intervals import covered, gaps, union
from stepscope.intervals.arrays import I64, NONE
from stepscope.model.profile import Profile
from stepscope.model.result import Result
from stepscope.model.statement import STATEMENT, sum_over
from stepscope.model.units import about


class Row(TypedDict):
    rank: Annotated[int, "rank of the process"]
    pid: Annotated[int | None, "process id on its host"]
    stage: Annotated[str, "stage of the trainer's labels, or (no stage)"]
    range: Annotated[str | None, "range that launched it"]
    name: Annotated[str, "kernel name"]
    stream: Annotated[int, "stream id within the process"]
    start_ns: Annotated[int, "start on the GPU"]
    dur_ns: Annotated[int, "duration"]
    exposed_ns: Annotated[int, "part of it during which the rank computes nothing"]
    barrier: Annotated[bool, "in order with compute on its own stream"]
    held_ns: Annotated[int, "exposed while the next compute kernel was launched but had to wait"]
    starved_ns: Annotated[int, "exposed while the host had not launched the next compute kernel"]
    next_op: Annotated[
        str | None, "the compute kernel that ended the (longest) exposed stretch; null where none followed"
    ]


def exposed(
    profile: Profile,
    window: WindowSpec,
    *,
    stage: Annotated[str | None, "what a stage range is called (regular expression), instead of --labels"] = None,
) -> Result:
    check_pattern("stage", stage)
    need_communication(profile)
    chosen = windows(profile, window, "chunk")
    frames = [
        span.named(_rows(profile, data, comm_ops(data, span), stage))
        for data in ranks_of(profile)
        for span in chosen.of(data.rank)
    ]
    table = pl.concat(frames).sort(
        ["exposed_ns", "rank", "start_ns"], descending=[True, False, False], maintain_order=True
    )
    statement = _statement(about_window(chosen.spans), table)
    notes = [*chosen.notes, *outside_notes(profile, chosen), *bare_notes(profile), *graph_notes(profile)]
    return Result(chosen.table(Row, table), chosen.rows(), {STATEMENT: statement}, notes, ranked_by="exposed_ns")


def _statement(where: str, table: pl.DataFrame) -> str:
    """How much is exposed, and what compute was doing instead: held, or not launched yet."""
    sides = table.filter(~pl.col("barrier"))
    bare, held, starved = (int(sides[c].sum()) for c in ("exposed_ns", "held_ns", "starved_ns"))
    ranks = table["rank"].n_unique()
    if not bare and (in_order := int(table["exposed_ns"].sum())):
        what = f"All exposed communication of {where}, {about(in_order)}{sum_over(ranks)}, is in order with compute"
        return f"{what} on its own stream: none of it can be hidden."
    if not bare:
        return f"No communication is exposed in {where}."
    reasons = {
        "the next kernel was already launched and had to wait": held,
        "the host had not launched it yet": starved,
    }
    why = [f"for {about(ns) if ns < bare else 'all'} of it {text}" for text, ns in reasons.items() if ns]
    return f"{about(bare)} of communication is exposed in {where}{sum_over(ranks)}: {', '.join(why)}."


def _rows(profile: Profile, data: RankData, comm: CommOps, stage: str | None) -> pl.DataFrame:
    """The ops of one window, the worst first."""
    order = np.argsort(-comm.exposed, kind="stable")
    ops, start, end = comm.ops[order], comm.start[order], comm.end[order]
    held, next_op = _instead(data, start, end)
    followed = pl.Series(next_op != NONE)
    names = profile.names
    return pl.DataFrame(
        {
            "rank": np.full(len(ops), data.rank, dtype=np.int64),
            "pid": pl.Series([data.pid] * len(ops), dtype=pl.Int64),
            "stage": data.stage_of(ops, stage),
            "range": data.text_of(data.enclosing(ops)),
            "name": names.gather(data.name[ops]),
            "stream": data.stream[ops].astype(np.int64),
            "start_ns": start,
            "dur_ns": end - start,
            "exposed_ns": comm.exposed[order],
            "barrier": comm.barrier[order],
            "held_ns": held,
            "starved_ns": comm.exposed[order] - held,
            "next_op": pl.select(pl.when(followed).then(names.gather(data.name[np.maximum(next_op, 0)]))).to_series(),
        }
    )


def _instead(data: RankData, start: I64, end: I64) -> tuple[I64, I64]:
    """How long each op was exposed while the next compute kernel was launched, and which kernel that was.

    Between two stretches of compute the next kernel is the one that ends the gap: from its launch on the gap is held.
    An op that spans several gaps names the kernel after the longest.
    """
    compute = np.flatnonzero(data.role == COMPUTE)
    if len(start) == 0 or len(compute) == 0:
        return np.zeros(len(start), np.int64), np.full(len(start), NONE, dtype=np.int64)
    lo, hi = int(start.min()), int(end.max())
    later = int(np.searchsorted(data.compute.start, hi))  # the last gap ends with the compute behind all of the ops
    behind = int(data.compute.start[later]) if later < len(data.compute) else max(hi, int(data.end.max()))
    bare = gaps(data.compute, lo, behind)
    k = np.searchsorted(data.start[compute], bare.end)
    after = np.where(k < len(compute), compute[np.minimum(k, len(compute) - 1)], NONE)
    launched = np.where(after != NONE, data.launched_at[np.maximum(after, 0)], bare.end)
    held = covered(start, end, union(np.clip(launched, bare.start, bare.end), bare.end))
    # Pairs of an op and a gap that it meets.
    first = np.searchsorted(bare.end, start, side="right")
    count = np.maximum(np.searchsorted(bare.start, end, side="left") - first, 0)
    op = np.repeat(np.arange(len(start)), count)
    gap = np.arange(len(op)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    shared = np.minimum(end[op], bare.end[gap]) - np.maximum(start[op], bare.start[gap])
    order = np.lexsort((gap, -shared, op))
    longest = order[np.r_[True, op[order][1:] != op[order][:-1]]] if len(op) else order
    next_op = np.full(len(start), NONE, dtype=np.int64)
    next_op[op[longest]] = after[gap[longest]]
    return held, next_op
