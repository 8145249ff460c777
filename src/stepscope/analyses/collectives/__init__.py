"""What did each collective cost, and who waited for whom?

The same collective on all its ranks, on one clock. The last to arrive waits for nobody: what others spend before that
is waiting, `transfer_ns` is what is left on the rank that was done first. Bandwidths follow nccl-tests: `bytes` is its
size S, `algbw` = S / transfer, `busbw` what links would have to carry. A long collective is not a slow network: look at
`max_wait_ns` first. `--by` sums up, with the spread of the bus bandwidth for each size of message. `--ceiling FILE`
sets it beside what `capture nccl` or nccl-tests reached on the same machines, message by message; `--ceiling links`
beside what the links of these GPUs carry, within a node.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import numpy as np
import polars as pl

from stepscope.analyses.collectives.ceiling import read_ceiling
from stepscope.analyses.collectives.chosen import imbalance, inside
from stepscope.analyses.collectives.links import of_links
from stepscope.derive.accounting.named_window import unit_of
from stepscope.derive.comm.across import Across, Align, across
from stepscope.derive.comm.table import table_of
from stepscope.derive.windows.spec import WindowSpec
from stepscope.errors import BadInput
from stepscope.model.option import Effect
from stepscope.model.profile import Profile
from stepscope.model.result import Result, names, rows
from stepscope.model.statement import STATEMENT, several, sum_over
from stepscope.model.units import about

By = Literal["collective", "group", "op", "size"]
#: Instead of a file: what the links of the GPUs carry.
_LINKS = "links"

ACROSS = True


class Row(TypedDict):
    group: Annotated[str, "communicator, as the trace names it"]
    op: Annotated[str, "operation; send_recv is one transfer of a pair"]
    seq: Annotated[int, "ordinal in its communicator; of a transfer, among those of its pair and direction"]
    ranks: Annotated[str, "its ranks; from>to for a transfer"]
    bytes: Annotated[int | None, "size S as nccl-tests counts it; null where the trace does not say"]
    transfer_ns: Annotated[
        int | None, "least of (end − last arrival) over its ranks; null where one rank alone was recorded"
    ]
    max_wait_ns: Annotated[int | None, "last arrival − first arrival"]
    last_rank: Annotated[int | None, "who arrived last"]
    algbw_gbps: Annotated[float | None, "bytes / transfer"]
    busbw_gbps: Annotated[float | None, "algorithm bandwidth times the operation's factor"]
    skew_ns: Annotated[int | None, "last end − first end"]
    start_ns: Annotated[int, "last arrival, on the clock of the first host"]
    first_rank: Annotated[int | None, "who arrived first"]
    wait_ns: Annotated[int | None, "waiting of all its ranks together"]
    present: Annotated[int, "ranks that recorded it"]
    axis: Annotated[str | None, "what it serves: tp, pp, dp, ep, cp; null where unknown"]
    known_by: Annotated[str, "how it was matched: payload, metadata, labels or order"]
    ceiling_gbps: Annotated[
        float | None, "bus bandwidth measured with messages of this size, or of the links; null without --ceiling"
    ]
    ceiling_pct: Annotated[float | None, "busbw as a share of it"]
    pid: Annotated[int | None, "process id of last_rank on its host"]


class _Sums(TypedDict):
    n: Annotated[int, "collectives"]
    ranks: Annotated[str, "ranks of each; several where they differ"]
    bytes: Annotated[int | None, "sum of their sizes; null where the trace does not say"]
    transfer_ns: Annotated[int | None, "sum of their transfers"]
    max_wait_ns: Annotated[int | None, "longest wait of a rank"]
    wait_ns: Annotated[int | None, "waiting of all ranks together"]
    busbw_p5_gbps: Annotated[float | None, "bus bandwidth, 5th percentile"]
    busbw_p50_gbps: Annotated[float | None, "median bus bandwidth"]
    busbw_p95_gbps: Annotated[float | None, "95th percentile"]
    peak_pct: Annotated[float | None, "median as a share of --peak-gbps"]
    ceiling_pct: Annotated[float | None, "median share of the ceiling of messages of that size; null without --ceiling"]


class _Group(TypedDict):
    group: Annotated[str, "communicator"]
    op: Annotated[str, "operation"]
    axis: Annotated[str | None, "what it serves"]


class _Op(TypedDict):
    op: Annotated[str, "operation"]


class _Size(_Op):
    size_bytes: Annotated[int | None, "size of the message, rounded down to a power of two"]


class ByGroup(_Group, _Sums): ...


class ByOp(_Op, _Sums): ...


class BySize(_Size, _Sums): ...


_KEYS: dict[str, type] = {"group": _Group, "op": _Op, "size": _Size}
VARIANTS = {"by=group": ByGroup, "by=op": ByOp, "by=size": BySize}


def collectives(
    profile: Profile,
    window: WindowSpec,
    *,
    by: Annotated[By, "what a row is"] = "collective",
    align: Align = "auto",
    peak_gbps: Annotated[float | None, "bus bandwidth that the links could give, to compare with"] = None,
    ceiling: Annotated[
        Path | None,
        "what `capture nccl` or nccl-tests measured on these machines (a file or a folder), or `links`",
        Effect.READS,
    ] = None,
) -> Result:
    if peak_gbps is not None and peak_gbps <= 0:
        raise BadInput(f"--peak-gbps {peak_gbps}: not positive", "give the bandwidth in 10⁹ bytes per second")
    by_links = ceiling is not None and str(ceiling) == _LINKS
    measured = None if ceiling is None or by_links else read_ceiling(ceiling)  # before anything large is read
    sides = across(profile, align)
    table = table_of(sides)
    reached, reached_by = pl.Series("ceiling_gbps", [None] * table.height, dtype=pl.Float64), ""
    if by_links:
        reached, links = of_links(table, sides)
        reached_by = f"the links of {links} carry"
    elif measured is not None:
        reached, reached_by = measured.column(table), f"{measured.by} did"
    table = _beside(table, reached)
    shown, spans = inside(profile, window, sides, table)
    summary = _summary(sides, shown, peak_gbps, f"the {unit_of(w['kind'] for w in spans)}")
    summary[STATEMENT] += _reaching(shown, reached_by)
    every = window.index == "all"
    if by == "collective":
        answer = rows(Row, shown, windows=every)
    else:
        answer = rows(VARIANTS[f"by={by}"], _grouped(shown, by, peak_gbps, every), windows=every)
    return Result(answer, spans, summary, sides.notes, ranked_by="wait_ns")


def _beside(table: pl.DataFrame, reached: pl.Series) -> pl.DataFrame:
    """With the ceiling of each collective, and the share of it that it reaches."""
    share = 100 * pl.col("busbw_gbps") / pl.col("ceiling_gbps")
    return table.with_columns(reached).with_columns(share.alias("ceiling_pct"))


def _grouped(table: pl.DataFrame, by: By, peak: float | None, each_window: bool) -> pl.DataFrame:
    """Rows by group, operation or size; where all windows were asked for, of each of them."""
    keys = [*(["index", "window", "label"] if each_window else []), *names(_KEYS[by])]
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
    figures[STATEMENT] = _statement(where, table, figures, a.ranks.height)
    return figures


def _statement(where: str, table: pl.DataFrame, figures: dict[str, Any], ranks: int) -> str:
    """How long ranks wait for each other, for whom most often, and how long transfers take."""
    if not table.height:
        return f"No collective lies in {where}."
    count = several(table.height, "collective")
    if figures["transfer_ns"] is None or figures["wait_ns"] is None:
        return f"{count} in {where}, each recorded on only one rank: who waited for whom is not known."
    moved = f"transfers take {about(figures['transfer_ns'])}"
    last = table.filter(pl.col("wait_ns") > 0)["last_rank"].drop_nulls().value_counts().sort("count", "last_rank")
    if not figures["wait_ns"] or not last.height:
        return f"Ranks wait for nobody in the {count} of {where}; {moved}."
    rank, times = last.row(-1)
    waited = f"Ranks wait {about(figures['wait_ns'])} for each other in {count} of {where}{sum_over(ranks)}"
    return f"{waited}, most often for rank {rank} (last in {times:,}); {moved}."


def _reaching(table: pl.DataFrame, reached_by: str) -> str:
    """How much of their ceiling transfers reach, weighed by their time: the worst operation."""
    judged = table.filter(pl.col("ceiling_pct").is_not_null() & (pl.col("transfer_ns") > 0))
    if not judged.height:
        return ""
    share = (pl.col("ceiling_pct") * pl.col("transfer_ns")).sum() / pl.col("transfer_ns").sum()
    each = judged.group_by("op").agg(share.alias("pct"), pl.col("transfer_ns").sum()).sort("pct", "op")
    op, pct, ns = each.row(0)
    return f" {op.replace('_', '-').capitalize()}s reach {pct:.0f} % of what {reached_by}, in {about(ns)} of transfers."


def _total(column: pl.Series) -> int | None:
    """The sum; null where nothing is known, as with a single rank of every group."""
    return None if column.null_count() == len(column) > 0 else int(column.sum())


def table_rows(table: pl.DataFrame, a: Across) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which meetings the shown table has."""
    mask = np.zeros(a.meetings.height, dtype=bool)
    mask[table["meeting"].to_numpy()] = True
    return mask
