"""The work of one window: ops with their FLOPs and GPU time, and the compute that nothing is known of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from stepscope.derive.flops.precision import peak
from stepscope.derive.flops.work import BACKWARD, FORWARD, Work
from stepscope.derive.rank.data import COMPUTE, RankData
from stepscope.derive.windows.window import Window
from stepscope.intervals.arrays import NONE
from stepscope.model.gpus import Gpu, Precision
from stepscope.model.profile import Profile

#: Attention in full (PaLM, torchtitan), or without what a causal mask hides (Megatron-LM).
Convention = Literal["full", "causal"]
#: Families of kernels whose FLOPs would count; of `graph` and `other` nobody knows.
WORK = ("gemm", "attention", "convolution", "graph", "other")


@dataclass(frozen=True)
class Bound:
    """What the GPU could do: its rates, or one that the user gave; and the numbers that types which were not recorded
    (with `always`, all of them) are taken for."""

    gpu: Gpu | None
    given: float | None = None
    assumed: Precision = "bf16"
    always: bool = False

    def of(self, precision: str | None, tensor_cores: bool) -> tuple[str, float] | None:
        """The rate for products of a precision, 10¹² a second, and its name."""
        if self.given is not None:
            return "as given", self.given
        if self.always or precision is None:
            rate = self.gpu.rate(self.assumed) if self.gpu else None
            return (self.assumed, rate) if rate else None
        return peak(self.gpu, precision, tensor_cores) if self.gpu else None


@dataclass(frozen=True)
class WindowWork:
    """`ops`: as in `Work`, those of the window, with `model` and `hardware` FLOPs under the convention, `gpu_ns`, the
    `peak` that bounds them, its `rate`, and the place of the op in the window's time. `kernels`: compute by name with
    its time, `counted` or not, and whether its family is `work`."""

    window_ns: int
    ops: pl.DataFrame
    kernels: pl.DataFrame
    #: Ops of the window that are work, and of which it is not known how much: `name` and `why`.
    unclear: pl.DataFrame

    def ideal_ns(self, flops: str) -> float:
        """How long the FLOPs would take at the peak of each."""
        return float((self.ops[flops] / (1e3 * self.ops["rate"])).sum())

    def share(self, flops: str) -> float | None:
        """Utilization of the window, in percent."""
        return 100.0 * self.ideal_ns(flops) / self.window_ns if self.window_ns else None

    def total(self, flops: str) -> int:
        return round(float(self.ops[flops].sum()))

    def part_of_compute(self, *, counted: bool) -> float | None:
        """Of the time of compute kernels, in percent: what is counted; or what would count, and is not."""
        time = int(self.kernels["ns"].sum())
        chosen = pl.col("counted") if counted else ~pl.col("counted") & pl.col("work")
        return 100.0 * int(self.kernels.filter(chosen)["ns"].sum()) / time if time else None


def of_window(
    profile: Profile, data: RankData, span: Window, work: Work, bound: Bound, convention: Convention
) -> WindowWork:
    """The work of a window."""
    rows = span.ops[data.role[span.ops] == COMPUTE]
    length = span.lengths(data, rows)
    names = profile.names
    ids = pl.Series("id", np.unique(data.name[rows]))
    texts = names.gather(ids) if len(ids) else pl.Series([], dtype=pl.String)
    tensor = profile.taxonomy.tensor_core(texts).fill_null(False)
    about = pl.DataFrame(
        {"id": ids, "kernel": texts, "tensor": tensor, "work": profile.taxonomy.family(texts).is_in(list(WORK))}
    )
    has_flops = work.ops["asked"].is_not_null().to_numpy()
    of = work.of_kernel[rows]
    counted = (of != NONE) & (has_flops[np.maximum(of, 0)] if len(has_flops) else False)
    whole = data.end[rows] - data.start[rows]
    frame = pl.DataFrame(
        {"id": data.name[rows], "row": rows, "op": of, "ns": length, "whole": whole, "counted": counted}
    )
    frame = frame.join(about, on="id", how="left", maintain_order="left")
    kernels = frame.group_by("kernel", "counted", "work").agg(pl.col("ns").sum(), pl.len().alias("n"))
    per_op = (
        frame.filter("counted")
        .group_by("op", maintain_order=True)
        .agg(
            pl.col("ns").sum().alias("gpu_ns"),
            pl.col("whole").sum(),
            pl.col("tensor").any(),
            pl.col("row").first().alias("kernel_row"),
        )
    )
    ops = work.ops[per_op["op"].to_numpy()].hstack(per_op.drop("op"))
    lacking = np.unique(of[(of != NONE) & ~counted])
    return WindowWork(
        span.gpu_ns,
        _with_rates(_with_flops(ops, convention), bound),
        kernels.sort("ns", descending=True),
        work.ops[lacking].select("name", "why"),
    )


def _with_flops(ops: pl.DataFrame, convention: Convention) -> pl.DataFrame:
    """What the model asks for, and what the hardware does; of an op that the window cuts, the part of its time."""
    asked, again = ("asked", "again") if convention == "full" else ("causal", "again_causal")
    inside = pl.when(pl.col("whole") > 0).then(pl.col("gpu_ns") / pl.col("whole")).otherwise(1.0)
    return ops.with_columns(
        model=pl.when(pl.col("phase").is_in([FORWARD, BACKWARD])).then(pl.col(asked) * inside).otherwise(0.0),
        hardware=(pl.col(asked) + pl.col(again)) * inside,
    )


def _with_rates(ops: pl.DataFrame, bound: Bound) -> pl.DataFrame:
    distinct = ops.select("precision", "tensor").unique()
    rates = [bound.of(*row) or (None, None) for row in distinct.iter_rows()]
    with_rates = distinct.with_columns(
        peak=pl.Series([r[0] for r in rates], dtype=pl.String), rate=pl.Series([r[1] for r in rates], dtype=pl.Float64)
    )
    return ops.join(with_rates, on=["precision", "tensor"], how="left", nulls_equal=True, maintain_order="left")
