"""Every communication op with what ran beside it: compute, and other communication of the same rank."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.comm.calls import sides_of
from stepscope.derive.rank.data import COMM, ranks_of
from stepscope.errors import CannotAnswer
from stepscope.intervals import Spans, covered, union
from stepscope.intervals.arrays import I64
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.nsys.recipes.picture import Bars
from stepscope.nsys.recipes.spec import Outcome, Recipe, per_source, with_pid
from stepscope.nsys.reports.spec import Args
from stepscope.nsys.reports.view import View

_TRACE = (
    *("rank", "name", "operation", "communicator", "bytes", "stream", "start_ns", "dur_ns"),
    *("compute_ns", "comm_ns", "exposed_ns", "alone_ns"),
)


def several(start: I64, end: I64) -> Spans:
    """Instants that at least two of the intervals cover."""
    times = np.concatenate([start, end])
    change = np.repeat([1, -1], len(start))
    order = np.lexsort((change, times))
    depth = np.cumsum(change[order])
    at = times[order]
    inside = depth[:-1] >= 2
    return union(at[:-1][inside], at[1:][inside])


def _trace(view: View, args: Args) -> pl.DataFrame:
    view.need("ops")
    profile = view.profile
    frames = []
    for data in ranks_of(profile):
        ops = np.flatnonzero(data.role == COMM)
        if len(ops) == 0:
            continue
        start, end = data.start[ops], data.end[ops]
        length = end - start
        in_compute = covered(start, end, data.compute)
        # An op is itself one of those that run: where two run, there is another.
        others = several(start, end)
        beside = covered(start, end, others)
        any_other = union(np.r_[data.compute.start, others.start], np.r_[data.compute.end, others.end])
        sides = sides_of(profile, data)
        by_op = sides.group_by("op").agg(
            pl.col("kind").first().alias("operation"),
            pl.col("communicator").first(),
            pl.when(pl.col("bytes").is_not_null().any()).then(pl.col("bytes").sum()).alias("bytes"),
        )
        mine = pl.DataFrame(
            {
                "op": ops,
                "rank": pl.Series([data.rank] * len(ops), dtype=pl.Int32),
                "name": profile.names.gather(data.name[ops]),
                "stream": data.stream[ops],
                "start_ns": start,
                "end_ns": end,
                "dur_ns": length,
                "compute_ns": in_compute,
                "comm_ns": beside,
                "exposed_ns": length - in_compute,
                "alone_ns": length - covered(start, end, any_other),
            },
            schema_overrides={"op": pl.Int64},
        )
        mine = mine.join(by_op, on="op", how="left", maintain_order="left")
        frames.append(mine.filter(view.part.mask(mine)).select(_TRACE))
    if not frames:
        raise CannotAnswer("the profile has no communication ops", "profile a step of a multi-GPU run")
    return pl.concat(frames)


_PARTS = ("compute_ns", "comm_ns", "exposed_ns", "alone_ns")


def _summed(trace: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    total = pl.col("total_ns")
    overlaps = trace.group_by(keys).agg(
        pl.len().cast(pl.Int64).alias("n"),
        pl.when(pl.col("bytes").is_not_null().any()).then(pl.col("bytes").sum()).alias("bytes"),
        pl.col("dur_ns").sum().alias("total_ns"),
        *(pl.col(c).sum() for c in _PARTS),
    )
    shares = [
        pl.when(total > 0).then(pl.col(c) * 100 / total).round(1).alias(share)
        for c, share in (("compute_ns", "hidden_pct"), ("comm_ns", "shared_pct"))
    ]
    return overlaps.with_columns(shares).sort(keys, nulls_last=True)


def _overlap(profile: Profile, args: Args) -> Outcome:
    notes: list[Note] = []
    trace = pl.concat(per_source(profile, _trace, args, notes))
    if trace["communicator"].null_count() == trace.height:
        notes.append(noted("no-payloads"))
    every = _summed(trace, ["operation"]).sort("total_ns", descending=True)
    ranks = with_pid(profile, _summed(trace, ["rank", "operation"]))
    per_rank = _summed(trace, ["rank"])
    picture = Bars(
        "Communication that compute hides, by rank",
        [f"rank {r}" for r in per_rank["rank"].to_list()],
        per_rank["hidden_pct"].to_list(),
        "hidden_pct",
        [
            f"{row['n']} ops, {row['total_ns']} ns, exposed {row['exposed_ns']} ns"
            for row in per_rank.iter_rows(named=True)
        ],
    )
    tables = {"all_stats": every, "rank_stats": ranks, "trace": with_pid(profile, trace)}
    return Outcome(tables, [picture], notes)


RECIPES = (
    Recipe(
        "nccl_gpu_overlap_trace",
        "NCCL GPU Overlap Trace",
        _overlap,
        "Every communication op with the time that compute ran beside it (compute), that other communication of its"
        " rank did (comm), that no compute did (exposed), and that nothing did (alone). Communication is by the"
        " taxonomy: NCCL, NVSHMEM, custom all-reduces, peer copies.",
        (),
        ("operation",),
    ),
)
