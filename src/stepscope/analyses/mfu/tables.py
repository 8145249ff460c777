"""One window's FLOPs by term, and by stage."""

from __future__ import annotations

import re
from typing import Annotated, TypedDict

import numpy as np
import polars as pl

from stepscope.analyses.mfu.utilization import Utilization
from stepscope.derive.flops.work import BACKWARD, FORWARD
from stepscope.derive.rank.data import COMPUTE, NO_STAGE
from stepscope.intervals import union
from stepscope.intervals.arrays import I64, NONE, take
from stepscope.model.result import OfRank

#: Arguments at the end that are not tensors.
_NOT_GIVEN = re.compile(r"(, \[\])+\]$")
#: An op launched in no range.
NO_RANGE = "(no range)"


class Stage(TypedDict):
    stage: Annotated[str, "stage of the trainer's ranges; where there are none, the innermost range around the launch"]
    busy_ns: Annotated[int, "time in which compute of the stage runs"]
    model_flops: Annotated[
        int | None, "what the model asks for: forward and backward, nothing twice; null where ncu alone counts"
    ]
    hardware_flops: Annotated[
        int | None, "what was run, recomputation included; null where only a declared model is known"
    ]
    recomputed_flops: Annotated[int | None, "the part of it that had been computed before"]
    mfu_pct: Annotated[float | None, "time that the model's FLOPs take at the peak, as a share of busy_ns"]
    hfu_pct: Annotated[float | None, "the same of the hardware's FLOPs"]
    achieved_tflops: Annotated[float | None, "model (else hardware) FLOPs per second of it, 10¹²"]
    peak_tflops: Annotated[
        float | None, "dense peak they are measured against, 10¹² a second; of mixed precisions the mean"
    ]


class Term(TypedDict):
    phase: Annotated[
        str, "forward, backward, recomputed (forward, run again in backward), optimizer, measured (ncu's count)"
    ]
    op: Annotated[str, "torch op; with --model the part of the model"]
    shapes: Annotated[str | None, "of its arguments; with --model how FLOPs of a token come"]
    precision: Annotated[str | None, "of the numbers; null where types were not recorded"]
    n: Annotated[int, "how often; with --model tokens"]
    each_flops: Annotated[int | None, "model FLOPs of one; hardware's where it is recomputed"]
    model_flops: Annotated[int | None, "model FLOPs of all"]
    hardware_flops: Annotated[int | None, "hardware FLOPs of all; null with --model"]
    share_pct: Annotated[float | None, "share of the hardware's FLOPs; with --model of the model's"]
    gpu_ns: Annotated[int | None, "sum of its kernels' durations; null with --model"]
    achieved_tflops: Annotated[float | None, "hardware FLOPs per second of that, 10¹²"]
    peak_tflops: Annotated[float | None, "dense peak of its precision"]
    peak_pct: Annotated[float | None, "share of the peak that its kernels reach"]


class ByStage(OfRank, Stage): ...


class ByTerm(OfRank, Term): ...


def by_term(each: Utilization) -> list[Term]:
    """Every distinct op of the window, the largest first."""
    total = float(each.work.ops["hardware"].sum())
    terms = (
        each.work.ops.group_by("phase", "name", "shapes", "precision", "peak", "rate")
        .agg(pl.len().alias("n"), pl.col("model").sum(), pl.col("hardware").sum(), pl.col("gpu_ns").sum())
        .sort(["hardware", "phase", "name", "shapes"], descending=[True, False, False, False], nulls_last=True)
    )
    return [
        {
            "phase": row["phase"],
            "op": row["name"],
            "shapes": row["shapes"] and _NOT_GIVEN.sub("]", row["shapes"]),
            "precision": row["precision"],
            "n": row["n"],
            "each_flops": round((row["model"] or row["hardware"]) / row["n"]),
            "model_flops": round(row["model"]),
            "hardware_flops": round(row["hardware"]),
            "share_pct": 100.0 * row["hardware"] / total if total else None,
            "gpu_ns": row["gpu_ns"],
            "achieved_tflops": row["hardware"] / row["gpu_ns"] / 1e3 if row["gpu_ns"] else None,
            "peak_tflops": row["rate"],
            "peak_pct": 0.1 * row["hardware"] / row["gpu_ns"] / row["rate"] if row["gpu_ns"] and row["rate"] else None,
        }
        for row in terms.iter_rows(named=True)
    ]


def by_part(each: Utilization) -> list[Term]:
    """Every term of a declared model: the forward pass of each part, then the backward pass."""
    declared = each.asked.declared
    assert declared is not None
    tokens, total, peak = declared.tokens / declared.ranks, each.flops, each.peak_tflops
    full = each.asked.convention == "full"
    passes = [(FORWARD, 1), (BACKWARD, declared.passes - 1)]
    return [
        {
            "phase": phase,
            "op": part.name,
            "shapes": part.shown(full, factor),
            "precision": None,
            "n": round(tokens),
            "each_flops": factor * part.of(full),
            "model_flops": round(tokens * factor * part.of(full)),
            "hardware_flops": None,
            "share_pct": 100.0 * tokens * factor * part.of(full) / total if total else None,
            "gpu_ns": None,
            "achieved_tflops": None,
            "peak_tflops": peak,
            "peak_pct": None,
        }
        for phase, factor in passes
        if factor
        for part in declared.parts
    ]


def by_stage(each: Utilization) -> list[Stage]:
    """Every stage of the window that computes, in the order of its first op."""
    data = each.data
    inside = each.span.ops[data.role[each.span.ops] == COMPUTE]
    stages = _stages(each, inside)
    placed = each.work.ops.with_columns(stage=_stages(each, each.work.ops["kernel_row"].to_numpy()))
    table: list[Stage] = []
    for stage in stages.unique(maintain_order=True).to_list():
        ops, here = placed.filter(pl.col("stage") == stage), inside[(stages == stage).to_numpy()]
        busy = union(data.start[here], data.end[here]).length()
        model, hardware = float(ops["model"].sum()), float(ops["hardware"].sum())
        ideal = {f: float((ops[f] / (1e3 * ops["rate"])).sum()) for f in ("model", "hardware")}
        table.append(
            {
                "stage": stage,
                "busy_ns": busy,
                "model_flops": round(model),
                "hardware_flops": round(hardware),
                "recomputed_flops": round(hardware - model),
                "mfu_pct": 100.0 * ideal["model"] / busy if busy else None,
                "hfu_pct": 100.0 * ideal["hardware"] / busy if busy else None,
                "achieved_tflops": model / busy / 1e3 if busy else None,
                "peak_tflops": hardware / ideal["hardware"] / 1e3 if ideal["hardware"] else None,
            }
        )
    return table


def _stages(each: Utilization, ops: I64) -> pl.Series:
    """The stage of each op; without stages in the window, the innermost range around its launch."""
    data = each.data
    stages = data.stage_of(ops)
    if (data.stage_of(each.span.ops) != NO_STAGE).any() or data.ranges.height == 0:
        return stages
    at = data.enclosing(ops)
    names = take(data.ranges["name"].cast(pl.Int64).to_numpy(), at, NONE)
    texts = data.profile.names.gather(np.maximum(names, 0)) if len(ops) else pl.Series([], dtype=pl.String)
    return pl.select(pl.when(pl.Series(at != NONE)).then(texts).otherwise(pl.lit(NO_RANGE)).alias("stage")).to_series()
