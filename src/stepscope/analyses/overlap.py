"""Is communication hidden behind compute, and which stage exposes it?

`exposed` is the part of a communication op during which no compute kernel of that rank runs. It is measured op by op
against *all* compute of the rank, so that work of a neighbouring chunk that hides an all-to-all counts. Collectives on
a stream that also computes are in order with that compute: they are barriers, shown apart, and never called exposed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

import numpy as np
import polars as pl

from stepscope.derive.accounting.exposure import CommOps, comm_ops
from stepscope.derive.accounting.named_window import about_window
from stepscope.derive.comm.outside import outside_notes
from stepscope.derive.comm.purpose import purpose_of
from stepscope.derive.rank.data import NO_STAGE, RankData, ranks_of
from stepscope.derive.rank.graphs import graph_notes
from stepscope.derive.rank.needs import bare_notes, need_communication
from stepscope.derive.rank.pattern import check_pattern
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.intervals.arrays import Mask
from stepscope.model.kernel_names import shorten
from stepscope.model.note import noted
from stepscope.model.profile import Profile
from stepscope.model.range_names import short_range
from stepscope.model.ranks import some_ranks
from stepscope.model.result import OfRank, Result
from stepscope.model.statement import STATEMENT, most_in, percent, sum_over, time_of
from stepscope.model.units import about

By = Literal["stage", "range", "stream", "purpose", "op"]


class Figures(TypedDict):
    n: Annotated[int, "communication ops, barriers not counted"]
    comm_ns: Annotated[int, "sum of their durations"]
    exposed_ns: Annotated[int, "sum of the parts not covered by compute"]
    exposed_wall_ns: Annotated[int, "the same on the wall clock: ops that run side by side count once"]
    overlap_pct: Annotated[float | None, "100·(1 − exposed/comm); null without communication"]
    overlap_min_pct: Annotated[float | None, "the least hidden single op"]
    overlap_max_pct: Annotated[float | None, "the best hidden single op"]
    barrier_ns: Annotated[int, "communication in order with compute on its own stream"]


#: Of a stage over all ranks: sums, the median rank, and the one that exposes most.


class _OverRanks(TypedDict):
    ranks: Annotated[int, "ranks that have such communication"]
    n: Annotated[int, "communication ops of all of them, barriers not counted"]
    comm_ns: Annotated[int, "sum of their durations"]
    exposed_ns: Annotated[int, "sum of the parts not covered by compute"]
    overlap_pct: Annotated[float | None, "100·(1 − exposed/comm) of the sums; null without communication"]
    exposed_median_ns: Annotated[int | None, "median of the ranks' exposed time"]
    overlap_median_pct: Annotated[float | None, "median of the ranks' overlap"]
    worst_rank: Annotated[int | None, "the rank that exposes most; of equals the first"]
    worst_exposed_ns: Annotated[int | None, "exposed time of that rank"]
    worst_overlap_pct: Annotated[float | None, "overlap of that rank"]
    barrier_ns: Annotated[int, "communication in order with compute on its own stream, sum over ranks"]


class _Stage(OfRank):
    stage: Annotated[str, "stage of the trainer's labels, or (no stage)"]


class _Range(OfRank):
    range: Annotated[str, "range that launched it"]


class _Stream(OfRank):
    stream: Annotated[int, "stream id within the process"]


class _Purpose(OfRank):
    purpose: Annotated[str, "what it serves (see `streams`)"]


class _Op(OfRank):
    op: Annotated[str, "kernel name"]


class Row(_Stage, Figures): ...


class ByRange(_Range, Figures): ...


class ByStream(_Stream, Figures): ...


class ByPurpose(_Purpose, Figures): ...


class ByOp(_Op, Figures): ...


class _StageAcross(TypedDict):
    stage: Annotated[str, "stage of the trainer's labels, or (no stage)"]


class Across(_StageAcross, _OverRanks): ...


VARIANTS = {"by=range": ByRange, "by=stream": ByStream, "by=purpose": ByPurpose, "by=op": ByOp, "across": Across}


class _Key(TypedDict):
    key: str | int


class _RankKey(OfRank, _Key): ...


class _KeyOfRank(_RankKey, Figures):
    """A row while it is made: what it is of is named as `--by` says in the end."""


class _KeyAcross(_Key, _OverRanks): ...


class _Index(OfRank):
    index: int


class _Total(_Index, Figures): ...


def overlap(
    profile: Profile,
    window: WindowSpec,
    *,
    by: Annotated[By, "what a row is"] = "stage",
    stage: Annotated[str | None, "what a stage range is called (regular expression), instead of --labels"] = None,
    across: Annotated[bool, "a row over all ranks: sums, the median rank, and the one that exposes most"] = False,
) -> Result:
    check_pattern("stage", stage)
    need_communication(profile)
    chosen = windows(profile, window, "chunk")
    table: list[_KeyOfRank] = []
    totals: list[_Total] = []
    for data in ranks_of(profile):
        for span in chosen.of(data.rank):
            comm = comm_ops(data, span)
            keys = _keys(profile, data, comm, by, stage)
            of_keys = ((key, _figures(comm, (keys == key).to_numpy())) for key in _ordered(keys))
            table += span.keyed({**span.who, "key": key, **figures} for key, figures in of_keys)
            totals.append({**span.who, "index": span.index, **_figures(comm, np.ones(len(comm.ops), dtype=bool))})
    if across:
        result = chosen.table(_KeyAcross, _over_ranks(table, chosen.all) if table else [])
    else:
        result = chosen.table(_KeyOfRank, table)
    result = result.rename({"key": by})
    notes = [*chosen.notes, *outside_notes(profile, chosen), *bare_notes(profile), *graph_notes(profile)]
    if silent := [t["rank"] for t in totals if t["n"] == 0 and t["barrier_ns"] == 0]:
        notes.append(noted("no-communication-in-window", without=len(silent), all=len(totals), some=some_ranks(silent)))
    statement = _statement(about_window(chosen.spans), totals, table, by)
    return Result(result, chosen.rows(), summary={"total": totals, STATEMENT: statement}, notes=notes)


def _statement(where: str, totals: list[_Total], table: list[_KeyOfRank], by: By) -> str:
    """How much is hidden, and what exposes most of the rest."""
    comm, bare, barrier = (sum(t[k] for t in totals) for k in ("comm_ns", "exposed_ns", "barrier_ns"))
    ranks = len({t["rank"] for t in totals})
    if comm == 0:
        if barrier == 0:
            return f"No communication runs in {where}."
        what = f"All communication of {where}, {about(barrier)}{sum_over(ranks)}, is in order with compute"
        return f"{what} on its own stream: none of it can be hidden."
    beside = f"; another {about(barrier)} runs on the compute stream itself" if barrier else ""
    if bare == 0:
        all_of_it = f"{about(comm)}{sum_over(ranks)}"
        return f"Communication is 100 % hidden in {where}: compute runs beside all {all_of_it}{beside}."
    parts: dict[str, int] = {}
    length: dict[str, int] = {}
    for row in table:
        key = _worded(by, row["key"])
        parts[key] = parts.get(key, 0) + row["exposed_ns"]
        length[key] = length.get(key, 0) + row["comm_ns"]
    most = most_in(parts)
    place = f", {most[1]} in {most[0]}{_least_hidden(most[0], parts, length)}" if most else ""
    figures = f"{time_of(bare, comm, ranks)} is not overlapped with compute{place}"
    return f"Communication is {percent(comm - bare, comm)} hidden in {where}: {figures}{beside}."


def _least_hidden(most: str, exposed: dict[str, int], length: dict[str, int]) -> str:
    """The part of which the smallest share is hidden, where that is not the one that exposes most time."""
    hidden = {key: 1 - exposed[key] / total for key, total in length.items() if total}
    worst = min(hidden, key=lambda key: (hidden[key], key))
    share = percent(length[worst] - exposed[worst], length[worst])
    own = percent(length[most] - exposed[most], length[most])
    if share == own:
        return f" ({own} hidden)"
    return f" ({own} hidden); the least hidden is {worst} ({share})"


def _worded(by: By, key: Any) -> str:
    """A key as a sentence has it."""
    if key == NO_STAGE:
        return "no stage"
    return f"stream {key}" if by == "stream" else short_range(shorten(str(key)) if by == "op" else str(key))


def _keys(profile: Profile, data: RankData, comm: CommOps, by: By, stage: str | None | None) -> pl.Series:
    if by == "stage":
        return data.stage_of(comm.ops, stage)
    if by == "range":
        return data.text_of(data.enclosing(comm.ops)).fill_null("(no range)")
    if by == "stream":
        return pl.Series(data.stream[comm.ops]).cast(pl.Int64)
    if by == "purpose":
        return purpose_of(profile, data, comm.ops)
    return profile.names.gather(data.name[comm.ops])


def _over_ranks(table: list[_KeyOfRank], each_window: bool) -> pl.DataFrame:
    """One row per key, in the order of the keys; where all windows were asked for, per index and key."""
    asked = pl.col("n") > 0  # a rank with barriers only exposes nothing, and hides nothing
    worst = pl.col("exposed_ns").filter(asked).arg_max()  # the first of equals: ranks are in order
    keys = [*(["index"] if each_window else []), "last", "key"]
    frame = pl.DataFrame(table, infer_schema_length=None).with_columns(last=pl.col("key").cast(pl.String) == NO_STAGE)
    return (
        frame.sort("rank", maintain_order=True)
        .group_by(*keys)
        .agg(
            *(_common(c) for c in ("window", "index", "label") if c not in keys),
            pl.col("rank").n_unique().cast(pl.Int64).alias("ranks"),
            *(pl.col(c).sum() for c in ("n", "comm_ns", "exposed_ns", "barrier_ns")),
            pl.col("exposed_ns").filter(asked).median().round().cast(pl.Int64).alias("exposed_median_ns"),
            pl.col("overlap_pct").median().alias("overlap_median_pct"),
            *(pl.col(c).filter(asked).get(worst).alias(f"worst_{c}") for c in ("rank", "exposed_ns", "overlap_pct")),
        )
        .with_columns(
            pl.when(pl.col("comm_ns") > 0)
            .then(100.0 * (1.0 - pl.col("exposed_ns") / pl.col("comm_ns")))
            .alias("overlap_pct")
        )
        .sort(*keys)
    )


def _common(column: str) -> pl.Expr:
    """The value that all rows share, if they do: chunks of one index may be different work on two ranks."""
    return pl.when(pl.col(column).n_unique() == 1).then(pl.col(column).first()).alias(column)


def _ordered(keys: pl.Series) -> list[Any]:
    """Keys in order, what belongs to no stage last."""
    return sorted(keys.unique().to_list(), key=lambda k: (k == NO_STAGE, k))


def _figures(comm: CommOps, mine: Mask) -> Figures:
    counted = mine & ~comm.barrier
    length, exposed = comm.length[counted], comm.exposed[counted]
    total, bare = int(length.sum()), int(exposed.sum())
    real = length > 0
    each = 100.0 * (1.0 - exposed[real] / length[real])
    return {
        "n": int(counted.sum()),
        "comm_ns": total,
        "exposed_ns": bare,
        "exposed_wall_ns": comm.wall_ns(counted),
        "overlap_pct": 100.0 * (1.0 - bare / total) if total else None,
        "overlap_min_pct": float(each.min()) if len(each) else None,
        "overlap_max_pct": float(each.max()) if len(each) else None,
        "barrier_ns": int(comm.length[mine & comm.barrier].sum()),
    }
