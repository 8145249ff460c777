"""Which kernels take the time, and what sort of work are they?

Durations are summed over the ops that belong to the window (cut at its edges where it was given in GPU time). Kernels
that run side by side count each: shares of the window can pass 100 % together. Names are shortened to what a person
says; full names that share a short one are its `variants`. Families and tensor-core use are read from the name alone,
by rules that a taxonomy file can extend: `null` means that the name does not say.

Given with what Nsight Compute measured of the same program (`kernels run.sqlite run.ncu-rep`), it also says how far
each is from its roof: kernels are matched by name, grid and block, and where these leave a choice, by the launches
around them, their range or their length. What stays ambiguous has no roof, and a note lists it.

Where the GPU's metrics were sampled (`capture run --with gpu-metrics`), it says how busy multiprocessors, tensor cores
and DRAM were in each, by the samples that it fills alone. Kernels shorter than a sample have none, and a note says so.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

import numpy as np
import polars as pl

from stepscope.analyses.kernels.activities import Activities, activities, activity_of
from stepscope.derive.kernel.bound import bounds_of
from stepscope.derive.kernel.matched import match_notes, roof_ns_of
from stepscope.derive.kernel.matching import joined
from stepscope.derive.kernel.occupancy import LIMITER, SHARES, THEORETICAL, Occupancy, occupancies
from stepscope.derive.kernel.roofline import roofline_of
from stepscope.derive.kernel.room import room_of
from stepscope.derive.kernel.sampled import ACTIVITY
from stepscope.derive.rank.data import COMM, RankData, ranks_of
from stepscope.derive.rank.graphs import graph_notes
from stepscope.derive.rank.needs import need_ops
from stepscope.derive.rank.pattern import check_pattern
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import Window
from stepscope.derive.work.callers import callers, with_callers, with_most
from stepscope.derive.work.twins import with_twins
from stepscope.errors import CannotAnswer
from stepscope.intervals.arrays import I64, NONE, Mask
from stepscope.model.capturing import capture_by
from stepscope.model.demangle import demangled
from stepscope.model.kernel_names import short_names
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.result import OfRank, Result
from stepscope.model.statement import percent
from stepscope.model.taxonomy import COMMUNICATION
from stepscope.model.units import about


class _Figures(TypedDict):
    n: Annotated[int, "how often it ran"]
    total_ns: Annotated[int, "sum of its durations"]
    share_pct: Annotated[float, "total as a share of the window"]
    mean_ns: Annotated[int, "mean duration"]
    median_ns: Annotated[int, "median duration"]
    max_ns: Annotated[int, "longest"]


class _Sampled(TypedDict):
    sm_active_pct: Annotated[
        float | None, "share of its time in which multiprocessors had work, mean over all; by samples"
    ]
    tensor_active_pct: Annotated[float | None, "share of cycles in which tensor cores worked"]
    dram_read_pct: Annotated[float | None, "DRAM bandwidth read, of the peak"]
    dram_write_pct: Annotated[float | None, "DRAM bandwidth written, of the peak"]
    metric_samples: Annotated[
        int | None, "samples that it fills alone: fewer than three say nothing; null where none were taken"
    ]


class _Key(OfRank):
    name: Annotated[str, "short name; the full one with --full"]
    family: Annotated[str, "gemm, attention, norm, communication, copy …: by the name"]
    tensor_core: Annotated[
        bool | None, "whether the name says that tensor (matrix) cores are used; null where it does not say"
    ]


class _Measured(_Key, _Figures):
    variants: Annotated[int, "full names under this short one"]
    roof_pct: Annotated[
        float | None, "time at the roof of the measured kernels among them, of the time that they take; null without"
    ]
    bound: Annotated[str | None, "what bounds the measured one of them that takes most; null without"]
    measured_pct: Annotated[
        float | None, "share of its time in kernels that were measured; null where no report was given"
    ]


class _Launched(_Measured, _Sampled):
    torch_op: Annotated[
        str | None, "innermost torch op around the launches of most of it; null where ops were not recorded"
    ]
    module: Annotated[
        str | None, "module of the program that most of it belongs to; null where neither ranges nor stacks tell"
    ]
    occupancy_pct: Annotated[
        float | None,
        "occupancy as torch.profiler estimates it, mean by time; where it says 0 of a launch that fills more, computed "
        "as it does; null for other profilers",
    ]


class Row(_Launched, Occupancy):
    line: Annotated[
        str | None, "line that launched most of it when its graph was captured, where noted; of others, see `source`"
    ]


class _FamilyKey(OfRank):
    family: Annotated[str, "gemm, attention, norm, communication, copy …: by the name"]
    tensor_core_pct: Annotated[
        float | None, "share of its time in kernels known to use tensor cores; null where no name tells"
    ]


class _Family(_FamilyKey, _Figures):
    names: Annotated[int, "short names in the family"]


class ByFamily(_Family, _Sampled): ...


VARIANTS = {"by=family": ByFamily}


_OCCUPANCY = {**dict.fromkeys(SHARES, pl.Float64), LIMITER: pl.String}


def kernels(
    profile: Profile,
    window: WindowSpec,
    *,
    by: Annotated[Literal["name", "family"], "what a row is"] = "name",
    stage: Annotated[str | None, "only ops whose stage matches (regular expression)"] = None,
    range: Annotated[str | None, "only ops launched within a range that matches (regular expression)"] = None,
    full: Annotated[bool, "full names, not shortened"] = False,
    eager: Annotated[
        Profile | None, "the same steps without CUDA graphs, in modules: replayed kernels are named by it"
    ] = None,
) -> Result:
    need_ops(profile)
    _check(profile, stage=stage, range=range)
    chosen = windows(profile, window)
    names = _Names(profile, full)
    frames: list[pl.DataFrame] = []
    totals: list[dict[str, float | None]] = []
    looked_at: list[tuple[RankData, I64]] = []
    sampled_of: list[tuple[Activities, pl.DataFrame]] = []
    for data in ranks_of(profile):
        metrics = activities(profile, data)
        for span in chosen.of(data.rank):
            ops = span.ops[_wanted(data, span.ops, stage, range)]
            frame = names.of(data, ops, span.lengths(data, ops)).hstack(_roofs(profile, data, ops))
            table = _with_samples(_table(frame, by, span.gpu_ns), frame, by, data, ops, metrics)
            if by == "name":
                called_by = callers(data, ops)
                called_by = called_by.with_columns(with_twins(data, ops, called_by["module"], eager))
                table = with_callers(table, frame.hstack(called_by), _keys(by))
                table = with_most(table, frame, _keys(by), LIMITER)
            frames.append(span.of_rank(table))
            totals.append(_total(span, frame))
            if metrics is not None:
                sampled_of.append((metrics, table))
                totals[-1] |= metrics.mean(span.gpu_start_ns, span.gpu_end_ns)
            looked_at.append((data, ops))
    if (stage is not None or range is not None) and not any(t["n"] for t in totals):
        asked = " and ".join(f"--{k} {v!r}" for k, v in (("stage", stage), ("range", range)) if v is not None)
        raise CannotAnswer(f"no GPU op of the window matches {asked}", "`stepscope nvtx` lists the ranges there are")
    result = chosen.table(Row if by == "name" else ByFamily, pl.concat(frames) if frames else [])
    notes = [*chosen.notes, *graph_notes(profile), *_measured_notes(profile, looked_at), *_sampled_notes(sampled_of)]
    return Result(result, chosen.rows(), {"total": totals}, notes, ranked_by="total_ns")


class _Names:
    """What the names say, judged once per name."""

    def __init__(self, profile: Profile, full: bool) -> None:
        ids = profile.ops["name"].unique().sort()
        text = profile.names.gather(ids)
        shown = demangled(text) if full else short_names(text)
        rules = profile.taxonomy
        self._table = pl.DataFrame(
            {
                "id": ids,
                "name": shown,
                "family": rules.family(text),
                "tensor_core": rules.tensor_core(text),
            }
        )

    def of(self, data: RankData, ops: I64, length: I64) -> pl.DataFrame:
        """One row per op: its name's id, what the name says, and the op's time."""
        frame = pl.DataFrame({"id": data.name[ops], "comm": data.role[ops] == COMM, "ns": length})
        # A peer copy is communication by what it does, not by its name.
        family = pl.when("comm").then(pl.lit(COMMUNICATION)).otherwise(pl.col("family")).alias("family")
        return frame.join(self._table, on="id", how="left", maintain_order="left").with_columns(family)


def _keys(by: str) -> list[str]:
    return ["name", "family", "tensor_core"] if by == "name" else ["family"]


def _with_samples(
    table: pl.DataFrame, frame: pl.DataFrame, by: str, data: RankData, ops: I64, metrics: Activities | None
) -> pl.DataFrame:
    """The table with what sampled metrics say of each row."""
    if metrics is None:
        nothing = [
            pl.lit(None, pl.Int64).alias("metric_samples"),
            *(pl.lit(None, pl.Float64).alias(c) for c in ACTIVITY),
        ]
        return table.with_columns(nothing)
    rows = table.select(*_keys(by), pl.int_range(pl.len()).alias("row"))
    group = frame.select(_keys(by)).join(rows, on=_keys(by), how="left", nulls_equal=True, maintain_order="left")["row"]
    return table.hstack(activity_of(data, metrics, ops, group.to_numpy(), table.height))


def _sampled_notes(tables: list[tuple[Activities, pl.DataFrame]]) -> list[Note]:
    """How much of the kernels' time the samples can say anything of."""
    if not tables:
        return []
    total = sum(int(table["total_ns"].sum()) for _, table in tables)
    with_samples = [table.filter(pl.any_horizontal(pl.col(list(ACTIVITY)).is_not_null())) for _, table in tables]
    time = sum(int(table["total_ns"].sum()) for table in with_samples)
    period = max(metrics.period_ns for metrics, _ in tables)
    text = f"GPU metrics are sampled every {about(period)}: they tell of {percent(time, total)} of the kernels' time"
    if time < total:
        oftener = capture_by("--with gpu-metrics --nsys-args=--gpu-metrics-frequency=200000")
        text += f"; kernels that fill no three samples have none ({oftener})"
    return [noted("sampled-metrics", text=text)]


def _table(frame: pl.DataFrame, by: str, window_ns: int) -> pl.DataFrame:
    ns = pl.col("ns")
    whole = [ns.mean(), ns.median(), ns.max()]
    figures = [
        f.round(0).cast(pl.Int64).alias(f"{n}_ns") for f, n in zip(whole, ("mean", "median", "max"), strict=True)
    ]
    keys = _keys(by)
    named, used = pl.col("tensor_core").is_not_null(), pl.col("tensor_core").fill_null(False)
    return (
        frame.group_by(keys)
        .agg(
            pl.len().cast(pl.Int64).alias("n"),
            ns.sum().alias("total_ns"),
            *figures,
            pl.col("id").n_unique().cast(pl.Int64).alias("variants"),
            pl.col("name").n_unique().cast(pl.Int64).alias("names"),
            pl.when(named.any()).then(100.0 * ns.filter(used).sum() / ns.sum()).alias("tensor_core_pct"),
            *_measured(),
        )
        .with_columns(_share(window_ns))
        .sort(["total_ns", *keys], descending=[True, *([False] * len(keys))])
    )


def _roofs(profile: Profile, data: RankData, ops: I64) -> pl.DataFrame:
    """Of each op: the time at the roof of the measured kernel that it is, what bounds that, and whether it is one."""
    room = room_of(data, ops)
    if not joined(profile):
        types = {"roof": pl.Float64, "by": pl.String, "known": pl.Boolean, **_OCCUPANCY}
        nothing = pl.select(pl.repeat(None, len(ops), dtype=of).alias(name) for name, of in types.items())
        return nothing.with_columns(room)
    roof, kernel = roof_ns_of(profile, data.rank, ops)
    by = pl.Series([bound.by for bound in profile.once(bounds_of)], dtype=pl.String).gather(np.maximum(kernel, 0))
    matched = pl.Series(kernel != NONE)
    table = pl.DataFrame({"roof": pl.Series(roof).fill_nan(None), "by": by, "known": matched})
    filled = occupancies(profile.once(roofline_of).kernels)[np.maximum(kernel, 0)]
    table = table.hstack(filled).with_columns(pl.when("known").then(pl.col("by", *_OCCUPANCY)))
    measured = pl.col(THEORETICAL).is_not_null()
    return table.with_columns(pl.when(measured).then(pl.col(c)).otherwise(room[c]).alias(c) for c in room.columns)


def _mean(column: str) -> pl.Expr:
    """By time, over what was measured; kernels that took no time have no mean."""
    ns, share = pl.col("ns").filter(pl.col(column).is_not_null()), pl.col(column).drop_nulls()
    return pl.when(ns.sum() > 0).then((share * ns).sum() / ns.sum()).alias(column)


def _measured() -> list[pl.Expr]:
    ns, roof = pl.col("ns"), pl.col("roof")
    at_roof = roof.is_not_null()
    longest = (
        pl.col("by")
        .filter(pl.col("known") & pl.col("by").is_not_null())
        .sort_by(pl.col("ns").filter(pl.col("known") & pl.col("by").is_not_null()), descending=True)
    )
    return [
        pl.when(at_roof.any()).then(100.0 * roof.sum() / ns.filter(at_roof).sum()).alias("roof_pct"),
        longest.first().alias("bound"),
        pl.when(pl.col("known").is_not_null().any())
        .then(100.0 * ns.filter(pl.col("known").fill_null(False)).sum() / ns.sum())
        .alias("measured_pct"),
        *(_mean(c) for c in SHARES),
    ]


def _measured_notes(profile: Profile, asked: list[tuple[RankData, I64]]) -> list[Note]:
    return match_notes(profile, asked) if joined(profile) and asked else []


def _share(window_ns: int) -> pl.Expr:
    share = 100.0 * pl.col("total_ns") / window_ns if window_ns else pl.lit(None, dtype=pl.Float64)
    return share.alias("share_pct")


def _total(span: Window, frame: pl.DataFrame) -> dict[str, float | None]:
    total = int(frame["ns"].sum())
    return {
        "rank": span.rank,
        "index": span.index,
        "n": frame.height,
        "total_ns": total,
        "share_pct": 100.0 * total / span.gpu_ns if span.gpu_ns else None,
    }


def _wanted(data: RankData, ops: I64, stage: str | None, range: str | None) -> Mask:
    wanted = np.ones(len(ops), dtype=bool)
    if stage is not None:
        wanted &= data.stage_of(ops).str.contains(stage).to_numpy()
    if range is not None:
        wanted &= data.within(ops, range)
    return wanted


def _check(profile: Profile, **patterns: str | None) -> None:
    for option, pattern in patterns.items():
        if pattern is None:
            continue
        check_pattern(option, pattern)
        if not profile.has("ranges"):
            raise CannotAnswer(
                f"the profile has no NVTX ranges, so --{option} has nothing to match",
                capture_by("--ranges modules"),
            )
