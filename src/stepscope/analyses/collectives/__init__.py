"""What did each collective cost, and who waited for whom?

The same collective on all its ranks, on one clock. The last to arrive waits for nobody: what others spend before that
is waiting, `transfer_ns` is what is left on the rank that was done first. Bandwidths follow nccl-tests: `bytes` is its
size S, `algbw` = S / transfer, `busbw` what links would have to carry. A long collective is not a slow network: look at
`max_wait_ns` first. `--by` sums up, with the spread of the bus bandwidth for each size of message. `--ceiling FILE`
sets it beside what nccl-tests reached on the same machines, message by message.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl

from stepscope.analyses.collectives.ceiling import Ceiling, read_ceiling
from stepscope.analyses.collectives.chosen import imbalance, inside
from stepscope.derive.accounting.named_window import unit_of
from stepscope.derive.comm.across import Across, Align, across
from stepscope.derive.comm.table import table_of
from stepscope.derive.windows.spec import WindowSpec
from stepscope.errors import BadInput
from stepscope.model.effect import Effect
from stepscope.model.profile import Profile
from stepscope.model.result import Col, Result, rows
from stepscope.model.statement import STATEMENT, several, sum_over
from stepscope.model.units import about

By = Literal["collective", "group", "op", "size"]

ACROSS = True
COLUMNS = (
    Col("group", "communicator, as the trace names it"),
    Col("op", "operation; send_recv is one transfer of a pair"),
    Col("seq", "ordinal in its communicator; of a transfer, among those of its pair and direction"),
    Col("ranks", "its ranks; from>to for a transfer"),
    Col("bytes", "size S as nccl-tests counts it; null where the trace does not say"),
    Col("transfer_ns", "least of (end − last arrival) over its ranks; null where one rank alone was recorded"),
    Col("max_wait_ns", "last arrival − first arrival"),
    Col("last_rank", "who arrived last"),
    Col("algbw_gbps", "bytes / transfer"),
    Col("busbw_gbps", "algorithm bandwidth times the operation's factor"),
    Col("skew_ns", "last end − first end"),
    Col("start_ns", "last arrival, on the clock of the first host"),
    Col("first_rank", "who arrived first"),
    Col("wait_ns", "waiting of all its ranks together"),
    Col("present", "ranks that recorded it"),
    Col("axis", "what it serves: tp, pp, dp, ep, cp; null where unknown"),
    Col("known_by", "how it was matched: payload, metadata, labels or order"),
    Col("ceiling_gbps", "bus bandwidth that nccl-tests reached with messages of this size; null without --ceiling"),
    Col("ceiling_pct", "busbw as a share of it"),
    Col("pid", "process id of last_rank on its host"),
)
_SUMS = (
    Col("n", "collectives"),
    Col("ranks", "ranks of each; several where they differ"),
    Col("bytes", "sum of their sizes; null where the trace does not say"),
    Col("transfer_ns", "sum of their transfers"),
    Col("max_wait_ns", "longest wait of a rank"),
    Col("wait_ns", "waiting of all ranks together"),
    Col("busbw_p5_gbps", "bus bandwidth, 5th percentile"),
    Col("busbw_p50_gbps", "median bus bandwidth"),
    Col("busbw_p95_gbps", "95th percentile"),
    Col("peak_pct", "median as a share of --peak-gbps"),
    Col("ceiling_pct", "median share of what nccl-tests reached with messages of that size; null without --ceiling"),
)
_BY = {
    "group": (Col("group", "communicator"), Col("op", "operation"), Col("axis", "what it serves")),
    "op": (Col("op", "operation"),),
    "size": (Col("op", "operation"), Col("size_bytes", "size of the message, rounded down to a power of two")),
}
VARIANTS = {f"by={by}": (*keys, *_SUMS) for by, keys in _BY.items()}


def collectives(
    profile: Profile,
    window: WindowSpec,
    *,
    by: Annotated[By, "what a row is"] = "collective",
    align: Align = "auto",
    peak_gbps: Annotated[float | None, "bus bandwidth that the links could give, to compare with"] = None,
    ceiling: Annotated[
        Path | None, "what nccl-tests printed on these machines (a file, or a folder of them)", Effect.READS
    ] = None,
) -> Result:
    if peak_gbps is not None and peak_gbps <= 0:
        raise BadInput(f"--peak-gbps {peak_gbps}: not positive", "give the bandwidth in 10⁹ bytes per second")
    measured = None if ceiling is None else read_ceiling(ceiling)  # before anything large is read
    sides = across(profile, align)
    table = _beside(table_of(sides), measured)
    shown, spans = inside(profile, window, sides, table)
    summary = _summary(sides, shown, peak_gbps, f"the {unit_of(w['kind'] for w in spans)}")
    every = window.index == "all"
    if by == "collective":
        answer = rows(COLUMNS, shown, windows=every)
    else:
        answer = rows(VARIANTS[f"by={by}"], _grouped(shown, by, peak_gbps, every), windows=every)
    return Result(answer, spans, summary, sides.notes, ranked_by="wait_ns")


def _beside(table: pl.DataFrame, measured: Ceiling | None) -> pl.DataFrame:
    """With what nccl-tests reached, and the share of it that each collective does."""
    reached = pl.lit(None, pl.Float64).alias("ceiling_gbps") if measured is None else measured.column(table)
    share = 100 * pl.col("busbw_gbps") / pl.col("ceiling_gbps")
    return table.with_columns(reached).with_columns(share.alias("ceiling_pct"))


def _grouped(table: pl.DataFrame, by: By, peak: float | None, each_window: bool) -> pl.DataFrame:
    """Rows by group, operation or size; where all windows were asked for, of each of them."""
    keys = [*(["index", "window", "label"] if each_window else []), *(c.name for c in _BY[by])]
    size = pl.when(pl.col("bytes") > 0).then(2 ** pl.col("bytes").log(2).floor().cast(pl.Int64)).otherwise("bytes")
    bus = pl.col("busbw_gbps")

    def known(column: str) -> pl.Expr:
        return pl.col(column).is_not_null().any()

    groups = (
        table.with_columns(size.cast(pl.Int64).alias("size_bytes"))
        .group_by(keys, maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias("n"),
            pl.col("ranks").unique(maintain_order=True).head(4).str.join(" "),
            *(
                pl.when(pl.col(c).is_not_null().any()).then(pl.col(c).sum())
                for c in ("bytes", "transfer_ns", "wait_ns")
            ),
            pl.col("max_wait_ns").max(),
            *(bus.quantile(q / 100, "linear").alias(f"busbw_p{q}_gbps") for q in (5, 50, 95)),
            pl.col("ceiling_pct").median(),
        )
    )
    share = 100 * pl.col("busbw_p50_gbps") / peak if peak else pl.lit(None, pl.Float64)
    return groups.with_columns(share.alias("peak_pct")).sort(keys, nulls_last=True)


def _summary(a: Across, table: pl.DataFrame, peak: float | None, where: str) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "collectives": table.height,
        "wait_ns": _total(table["wait_ns"]),
        "transfer_ns": _total(table["transfer_ns"]),
        "residual_p95_ns": round(a.clocks.residual),
        "known_by": dict(sorted(table["known_by"].value_counts().iter_rows())),
        "all_to_all": imbalance(a, np.flatnonzero(table_rows(table, a))),
    }
    if peak:
        figures["peak_gbps"] = peak
    figures[STATEMENT] = _statement(where, table, figures, a.ranks.height) + _reaching(table)
    return figures


def _statement(where: str, table: pl.DataFrame, figures: dict[str, Any], ranks: int) -> str:
    """How long ranks wait for each other, for whom most often, and how long transfers take."""
    if not table.height:
        return f"No collective lies in {where}."
    count = several(table.height, "collective")
    if figures["transfer_ns"] is None or figures["wait_ns"] is None:
        return f"{count} in {where}, each recorded on one rank alone: who waited for whom is not known."
    moved = f"transfers take {about(figures['transfer_ns'])}"
    last = table.filter(pl.col("wait_ns") > 0)["last_rank"].drop_nulls().value_counts().sort("count", "last_rank")
    if not figures["wait_ns"] or not last.height:
        return f"Ranks wait for nobody in the {count} of {where}; {moved}."
    rank, times = last.row(-1)
    waited = f"Ranks wait {about(figures['wait_ns'])} for each other in {count} of {where}{sum_over(ranks)}"
    return f"{waited}, most often for rank {rank} (last in {times:,}); {moved}."


def _reaching(table: pl.DataFrame) -> str:
    """How much of what nccl-tests reached transfers do, weighed by their time: the worst operation."""
    judged = table.filter(pl.col("ceiling_pct").is_not_null() & (pl.col("transfer_ns") > 0))
    if not judged.height:
        return ""
    share = (pl.col("ceiling_pct") * pl.col("transfer_ns")).sum() / pl.col("transfer_ns").sum()
    each = judged.group_by("op").agg(share.alias("pct"), pl.col("transfer_ns").sum()).sort("pct", "op")
    op, pct, ns = each.row(0)
    return (
        f" {op.replace('_', '-').capitalize()}s reach {pct:.0f} % of what nccl-tests did, in {about(ns)} of transfers."
    )


def _total(column: pl.Series) -> int | None:
    """The sum; null where nothing is known, as with a single rank of every group."""
    return None if column.null_count() == len(column) > 0 else int(column.sum())


def table_rows(table: pl.DataFrame, a: Across) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which meetings the shown table has."""
    mask = np.zeros(a.meetings.height, dtype=bool)
    mask[table["meeting"].to_numpy()] = True
    return mask
