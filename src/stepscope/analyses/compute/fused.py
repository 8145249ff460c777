"""What fusing gives: good times of groups, and chains of a window as rows, like chains together."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.work.phases import BACKWARD
from stepscope.derive.work.reference import attention_rate, scores_reach, stream_ns
from stepscope.derive.work.rules import Role
from stepscope.derive.work.step import StepWork
from stepscope.intervals.arrays import F64, Mask

#: What heads and lengths usually are, where nothing tells.
_HEAD, _LENGTH = 64, 2048


def fused_good(work: StepWork) -> F64:
    """The good time of each kernel where what can be fused is: attention by hand as one kernel forward and one
    backward, chains as one. Kernels of a group share its time by theirs."""
    fused_good = work.good.ns.copy()
    if work.gpu is None:
        return fused_good
    chained = (work.chains.of >= 0) & ~work.parts.by_hand
    if chained.any():
        of = work.chains.of[chained]
        whole = np.bincount(of, weights=fused_good[chained], minlength=len(work.chains.count))
        fused_good[chained] *= np.clip(stream_ns(work.gpu, work.chains.needed) / np.maximum(whole, 1.0), 0.0, 1.0)[of]
    for backward in (False, True):
        mine = work.parts.by_hand & ((work.passes.phase == BACKWARD) == backward)
        if mine.any():
            fused_good[mine] *= min(1.0, attention_ns(work, mine, backward) / max(fused_good[mine].sum(), 1.0))
    return fused_good


def attention_ns(work: StepWork, mine: Mask, backward: bool) -> float:
    """What fused attention takes for the FLOPs of these products; nothing is taken to be masked. Without shapes, FLOPs
    are what products with scores reach in their time. Backward makes the scores anew: five products instead of four."""
    assert work.gpu is not None
    products = mine & work.kinds.are(Role.PRODUCT)
    length = work.length[products]
    flops = np.where(work.done.known[products], work.done.done[products], length * scores_reach() * work.done.half)
    rate = attention_rate(work.gpu, _HEAD, _LENGTH, causal=False, backward=backward)
    return float(flops.sum()) * (1.25 if backward else 1.0) / (1e3 * rate.value) if rate else float(length.sum())


def chain_rows(work: StepWork, ops: pl.DataFrame, window_ns: int) -> pl.DataFrame:
    """Chains with the same roles in the same order and pass, the longest first."""
    chains = work.chains
    fused = stream_ns(work.gpu, chains.needed) if work.gpu else chains.ns.astype(float)
    of = pl.DataFrame(
        {
            "chain": pl.int_range(len(chains.count), eager=True),
            "n": chains.count,
            "total_ns": chains.ns,
            "fused_ns": pl.Series(fused),
            "moved_bytes": chains.bytes,
            "needed_bytes": chains.needed,
        }
    )
    named = (
        ops.filter(pl.col("chain") >= 0)
        .group_by("chain", maintain_order=True)
        .agg(_shortened(), pl.col("phase").first())
        .join(of, on="chain", how="left")
    )
    share = 100.0 * pl.col("total_ns") / window_ns if window_ns else pl.lit(None, dtype=pl.Float64)
    return (
        named.group_by("kernels", "phase")
        .agg(
            pl.len().cast(pl.Int64).alias("times"),
            pl.col("n").first().cast(pl.Int64),
            pl.col("total_ns").sum(),
            *(pl.col(c).sum().round(0).cast(pl.Int64) for c in ("fused_ns", "moved_bytes", "needed_bytes")),
        )
        .with_columns(share.alias("share_pct"))
        .sort(["total_ns", "kernels", "phase"], descending=[True, False, False])
    )


def _shortened() -> pl.Expr:
    """`cast, elementwise x3, reduction`: neighbours of one role together."""
    runs = pl.col("role").rle()
    word = runs.struct.field("value") + pl.when(runs.struct.field("len") > 1).then(
        " x" + runs.struct.field("len").cast(pl.String)
    ).otherwise(pl.lit(""))
    return word.str.join(", ").alias("kernels")
