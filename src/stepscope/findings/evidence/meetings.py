"""The communication of the step, one row per rank and op, as matched across ranks."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.comm.across import Across
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.intervals.arrays import Mask


def met(case: Case) -> Across:
    """Communication of all ranks, matched."""
    across = case.path.met
    if across is None:
        raise CannotAnswer(
            "communication could not be matched across ranks" if len(case.ranks) > 1 else "the profile has one rank",
            "give the traces of all ranks, with NCCL's payloads (--include-blobs=true) or from torch.profiler",
        )
    return across


def in_step(case: Case) -> Mask:
    """Which sides of the matched communication are in the step."""
    a = met(case)
    inside = np.zeros(len(a.rank), dtype=bool)
    ops = a.matched.sides["op"].to_numpy()
    for rank, window in case.windows.items():
        of_rank = a.rank == rank
        inside[of_rank] = np.isin(ops[of_rank], window.ops)
    return inside


def sides(case: Case) -> pl.DataFrame:
    """Sides of the step: meeting, rank, op, own_bytes, ns (from the last arrival to this rank's end), and the meeting's
    kind, bytes, size, present, hosts, clocks, communicator, src, dst, purpose and took_ns (its transfer)."""
    a = met(case)
    ops = a.matched.sides["op"].to_numpy()
    hosts = dict(a.ranks.select("rank", "host").iter_rows())
    table = pl.DataFrame(
        {
            "meeting": a.meeting,
            "rank": a.rank,
            "op": ops,
            "own_bytes": a.matched.sides["bytes"],
            "ns": np.maximum(a.end - a.last[a.meeting], 0),
            "took_ns": a.transfer[a.meeting],
            "host": pl.Series([hosts[r] for r in a.rank.tolist()], dtype=pl.String),
            "clock": a.clocks.same[a.matched.sides["source"].cast(pl.Int64).to_numpy()],
        }
    )
    several = [pl.col(c).n_unique().over("meeting").alias(f"{c}s") for c in ("host", "clock")]
    table = table.with_columns(several).filter(pl.Series(case.once(in_step)))
    columns = ("meeting", "kind", "bytes", "size", "present", "communicator", "src", "dst", "purpose")
    return table.join(a.meetings.select(columns), on="meeting", maintain_order="left")
