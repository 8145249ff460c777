"""The work of one rank: FLOPs of each op that is work, the pass it belongs to, and the kernels that it launched.

This is what every source of FLOPs ends in, so that `mfu` need not know where they came from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.derive.flops.count import Arguments, Unclear
from stepscope.derive.flops.ops import count, is_work
from stepscope.derive.flops.precision import precision_of
from stepscope.derive.pytorch.torch_ops import torch_ops
from stepscope.derive.rank.data import RankData
from stepscope.intervals.arrays import I64, NONE, Mask, take
from stepscope.model.nesting import nearest, nest
from stepscope.model.profile import Profile

FORWARD, BACKWARD, AGAIN = "forward", "backward", "recomputed"
#: Products of an optimizer (Muon's) are run, and no part of the model's.
OPTIMIZER = "optimizer"
#: Counted by a profiler, kernel by kernel: it was run, but nothing says that the model asked for it.
MEASURED = "measured"

#: What torch calls the range around the step of an optimizer.
_OPTIMIZER_STEP = r"^Optimizer\.step#"
#: No op has more FLOPs: a GPU of today would take more than a minute. Sums of them do not overflow.
_MOST = 1 << 57
#: Of `Work.ops`.
SCHEMA: dict[str, type[pl.DataType]] = {
    "name": pl.String,
    "shapes": pl.String,
    "kind": pl.String,
    "phase": pl.String,
    "precision": pl.String,
    "asked": pl.Int64,
    "causal": pl.Int64,
    "again": pl.Int64,
    "again_causal": pl.Int64,
    "why": pl.String,
}


@dataclass(frozen=True)
class Work:
    """`ops`: the ops that are work, with their FLOPs, null where the record does not say (`why`). `of_kernel`: for
    each GPU op of the rank the row of `ops` that launched it, NONE where none did."""

    ops: pl.DataFrame
    of_kernel: I64
    #: How many ops have shapes.
    shaped: int


def from_shapes(profile: Profile, data: RankData) -> Work:
    """Work as torch ops and their shapes tell it."""
    torch = torch_ops(profile, data)
    frame = torch.frame
    counted: Mask = frame["name"].is_in(_work_names(frame)).to_numpy()
    chosen = np.flatnonzero(_innermost(torch.nesting.parent, counted))
    ops = frame[chosen].with_columns(
        pl.Series("backward", torch.backward[chosen]), pl.Series("ran_again", torch.again[chosen])
    )
    ops = _with_phase(
        ops.join(counts(frame), on=["name", *_ARGUMENTS], how="left", nulls_equal=True, maintain_order="left")
    )
    optimizing = pl.Series(_in_optimizer(data, ops), dtype=pl.Boolean)
    ops = ops.with_columns(phase=pl.when(optimizing).then(pl.lit(OPTIMIZER)).otherwise("phase"))
    of_kernel = _launched_by(data, ops)
    shaped = int(ops["shapes"].is_not_null().sum())
    return Work(ops.select(*SCHEMA), of_kernel, shaped)


_ARGUMENTS = ("shapes", "types", "values")


def counts(frame: pl.DataFrame) -> pl.DataFrame:
    """Every distinct op that is work, with its FLOPs: judged once each, however often it ran."""
    chosen = frame.filter(pl.col("name").is_in(_work_names(frame)))
    distinct = chosen.select("name", *_ARGUMENTS).unique(maintain_order=True)
    judged = [_judged(*row) for row in distinct.iter_rows()]
    schema = {c: t for c, t in SCHEMA.items() if c not in ("name", "shapes", "phase")} | {"pass": pl.String}
    return distinct.hstack(pl.DataFrame(judged, schema=schema, orient="row"))


def _judged(name: str, shapes: str | None, types: str | None, values: str | None) -> tuple[object, ...]:
    arguments = Arguments.parsed(shapes, types, values)
    precision = precision_of(arguments.types)
    try:
        work = count(name, arguments)
    except Unclear as unclear:
        return None, precision, None, None, None, None, str(unclear) if shapes else "shapes were not recorded", None
    assert work is not None  # only work is asked for
    why = "complex numbers are not counted" if precision == "complex" else "its shapes cannot be"
    if precision == "complex" or max(work.asked, work.again) > _MOST:
        return None, precision, None, None, None, None, why, None
    return work.kind, precision, work.asked, work.causal, work.again, work.again_causal, None, work.pass_


def _work_names(frame: pl.DataFrame) -> list[str]:
    """The names of ops that are work: judged once each."""
    return [name for name in frame["name"].unique().to_list() if is_work(name)]


def _innermost(parent: I64, counted: Mask) -> Mask:
    """Counted ops that hold no other one: `aten::linear` is told by the `aten::addmm` in it, whose types are those that
    were computed with."""
    rows = np.flatnonzero(counted)
    above = nearest(counted, parent)
    around = take(above, parent[rows], NONE)
    mask = counted.copy()
    mask[around[around != NONE]] = False
    return mask


def _with_phase(ops: pl.DataFrame) -> pl.DataFrame:
    """Forward, backward or recomputed.

    In a backward node, an op that recorded gradients ran again. So did one that only forward passes have. With
    `create_graph` a backward pass records gradients too: a product is only taken for one that ran again where the
    forward pass has its like.
    """
    once = ops.filter(~pl.col("backward")).select("name", "shapes").unique().with_columns(before=pl.lit(True))
    ops = ops.join(once, on=["name", "shapes"], how="left", nulls_equal=True, maintain_order="left")
    forward_only, backward_only = pl.col("pass") == "forward", pl.col("pass") == "backward"
    again = pl.col("ran_again") & pl.col("before").fill_null(False) & ~backward_only.fill_null(False)
    return ops.with_columns(
        phase=pl.when(pl.col("backward") & (again | forward_only.fill_null(False)))
        .then(pl.lit(AGAIN))
        .when(pl.col("backward") | backward_only.fill_null(False))
        .then(pl.lit(BACKWARD))
        .otherwise(pl.lit(FORWARD))
    )


def _in_optimizer(data: RankData, ops: pl.DataFrame) -> Mask:
    """Ops in a range that torch puts around the step of an optimizer."""
    if data.ranges.height == 0 or ops.height == 0:
        return np.zeros(ops.height, dtype=bool)
    tid, start = (ops[c].cast(pl.Int64).to_numpy() for c in ("tid", "start_ns"))
    mask: Mask = data.ancestors_until(data.range_at(tid, start), data.own_ranges_named(_OPTIMIZER_STEP)) != NONE
    return mask


def _launched_by(data: RankData, ops: pl.DataFrame) -> I64:
    """The op in which each GPU op was launched: the one that encloses the call, on its thread."""
    launching_op = np.full(len(data.start), NONE, dtype=np.int64)
    linked = np.flatnonzero(data.launch != NONE)
    if ops.height and len(linked):
        tid, start, end = (ops[c].cast(pl.Int64).to_numpy() for c in ("tid", "start_ns", "end_ns"))
        threads = data.calls["tid"].cast(pl.Int64).to_numpy()[data.launch[linked]]
        launching_op[linked] = nest(tid, start, end).enclosing(threads, data.launched_at[linked])
    return launching_op


def from_kernels(flops: I64, precision: pl.Series, names: pl.Series) -> Work:
    """Work that a profiler counted kernel by kernel: FLOPs (below 0 where unknown), precision and name of each GPU op.

    Nothing says which of it the model asked for: all of it is hardware's."""
    rows = np.flatnonzero(flops >= 0)
    made = pl.DataFrame({"name": names.gather(rows), "precision": precision.gather(rows), "asked": flops[rows]})
    ops = made.select(
        **{column: pl.lit(None, dtype) for column, dtype in SCHEMA.items()}
        | {
            "name": pl.col("name"),
            "kind": pl.lit("kernel"),
            "phase": pl.lit(MEASURED),
            "precision": pl.col("precision"),
            "asked": pl.col("asked"),
            "causal": pl.col("asked"),
            "again": pl.lit(0, pl.Int64),
            "again_causal": pl.lit(0, pl.Int64),
        }
    )
    of_kernel = np.full(len(flops), NONE, dtype=np.int64)
    of_kernel[rows] = np.arange(len(rows))
    return Work(ops, of_kernel, 0)
