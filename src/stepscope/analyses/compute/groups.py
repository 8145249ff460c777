"""A window's kernels in groups that a person would name, with what each needs and what it would take done well."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.analyses.compute.fused import fused_good
from stepscope.derive.rank.data import RankData
from stepscope.derive.work.arithmetic import REFERENCE, SCALED
from stepscope.derive.work.arithmetic import SOURCES as GOOD_FROM
from stepscope.derive.work.modules import modules
from stepscope.derive.work.parts import PARTS, layers
from stepscope.derive.work.phases import HOW, PHASES, in_order, symbols_of
from stepscope.derive.work.reference import MEASURED_ON
from stepscope.derive.work.roles import PRECISION
from stepscope.derive.work.rules import MEMORY_BOUND, Role
from stepscope.derive.work.sizes import SOURCES as SIZE_FROM
from stepscope.derive.work.sizes import crossing
from stepscope.derive.work.step import StepWork
from stepscope.intervals.arrays import I64, one_of
from stepscope.model.threshold import Threshold

_FAR = Threshold(
    3.0,
    "times what its FLOPs and bytes need",
    "a kernel that takes this much longer is bound by neither",
    ("tests/analyses/test_compute_question.py",),
)
_BOUND = ("latency", "compute", "memory")


def frame(data: RankData, work: StepWork, length: I64, by_module: bool = False) -> pl.DataFrame:
    """One row per op: everything that a group can be made of. `length`: its time within the window."""
    kinds, done = work.kinds, work.done
    best = fused_good(work)
    measured = REFERENCE if work.gpu and work.gpu.name == MEASURED_ON else SCALED
    origin = np.where(best < work.good.ns, measured, work.good.source)
    return pl.DataFrame(
        {
            "part": pl.Series(PARTS).gather(work.parts.part),
            "role": pl.Series([role.word for role in Role]).gather(kinds.role),
            "phase": pl.Series(PHASES).gather(work.passes.phase),
            "how": pl.Series(HOW).gather(work.passes.how),
            "module": modules(data, work.ops)
            if by_module
            else pl.repeat(None, len(length), dtype=pl.String, eager=True),
            "chain": work.chains.of,
            "by_hand": work.parts.by_hand,
            "layer": _layers(data, work),
            "ns": length,
            "flops": pl.Series(done.asked).fill_nan(None),
            "done": pl.Series(done.done).fill_nan(None),
            "bytes": pl.Series(work.sizes.bytes).fill_nan(None),
            "sized": pl.Series(SIZE_FROM).gather(work.sizes.source),
            "precision": pl.Series([name or None for name in PRECISION]).gather(done.precision),
            "bound": _bound(data, work),
            "good": np.minimum(best, length),
            "known": pl.Series(GOOD_FROM).gather(origin),
        }
    )


def _bound(data: RankData, work: StepWork) -> pl.Series:
    """What a kernel's time is most of: its FLOPs at the peak, its bytes at the memory's rate, or neither; null where
    nothing tells: of a GPU that nobody knows, and of copies that a link bounds."""
    if work.gpu is None:
        return pl.repeat(None, len(work.ops), dtype=pl.String, eager=True)
    length = np.maximum(work.length, 1)
    compute = np.nan_to_num(work.done.done / work.done.rate / length)
    memory = one_of(work.kinds.role, MEMORY_BOUND) & ~crossing(data, work.ops)
    moving = np.where(memory, np.nan_to_num(work.sizes.bytes / float(work.gpu.gbps) / length), 0.0)
    measured = (work.done.known & (work.done.done > 0)) | (memory & (work.sizes.source > 0))
    word = np.where(np.maximum(compute, moving) < 1 / _FAR.value, 0, np.where(compute >= moving, 1, 2))
    return pl.Series([*_BOUND, None], dtype=pl.String).gather(np.where(measured, word, len(_BOUND)))


def _layers(data: RankData, work: StepWork) -> I64:
    """The layer of each op, by the sequence of its pass that recurs; -1 where none does."""
    order = in_order(data, work.ops)
    symbols = symbols_of(data, work.ops)
    layer_of = np.full(len(work.ops), -1, np.int64)
    for phase in np.unique(work.passes.phase).tolist():
        mine = order[work.passes.phase[order] == phase]
        layer_of[mine] = layers(symbols[mine]).of(len(mine))
    return layer_of


def table(ops: pl.DataFrame, keys: list[str], window_ns: int) -> pl.DataFrame:
    """The groups by these keys, the longest first."""
    ns, good = pl.col("ns"), pl.col("good")
    share = 100.0 * pl.col("total_ns") / window_ns if window_ns else pl.lit(None, dtype=pl.Float64)
    return (
        ops.group_by(keys)
        .agg(
            pl.len().cast(pl.Int64).alias("n"),
            (pl.col("layer").filter(pl.col("layer") >= 0).n_unique()).cast(pl.Int64).alias("layers"),
            ns.sum().alias("total_ns"),
            good.sum().round(0).cast(pl.Int64).alias("good_ns"),
            _longest("known", pl.col("ns") - pl.col("good")).alias("good_from"),
            _sum("flops").alias("flops"),
            _sum("done").alias("done_flops"),
            _sum("bytes").alias("moved_bytes"),
            _longest("sized", ns).alias("bytes_from"),
            _longest("precision", ns).alias("precision"),
            _longest("bound", ns).alias("bound"),
            _longest("how", ns).alias("phase_from"),
        )
        .with_columns(share.alias("share_pct"))
        .sort(["total_ns", *keys], descending=[True, *([False] * len(keys))], nulls_last=True)
    )


def _sum(column: str) -> pl.Expr:
    """Null where no op of the group has it."""
    return pl.when(pl.col(column).is_not_null().any()).then(pl.col(column).sum().round(0).cast(pl.Int64))


def _longest(column: str, weight: pl.Expr) -> pl.Expr:
    """The value that most of the time has; null where none has any."""
    there = pl.col(column).is_not_null()
    return pl.col(column).filter(there).sort_by(weight.filter(there), descending=True).first()
