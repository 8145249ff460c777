"""Tokens of each rank of an expert group, by the bytes of its all-to-alls."""

from __future__ import annotations

import polars as pl

from stepscope.derive.comm.kinds import ALL_TO_ALL
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.evidence.meetings import sides
from stepscope.findings.evidence.peers import beyond_peers
from stepscope.model.threshold import Threshold

MORE_TOKENS = Threshold(
    1.02,
    "times the bytes of the others",
    "ranks with even loads differ by nothing; with a planted imbalance by 1.3 and more",
    ("tests/findings/test_faults_across.py::test_imbalance", "tests/findings/test_real_faults_across.py"),
)


def loads(case: Case) -> dict[int, float]:
    """By rank: the bytes of its all-to-alls as a multiple of those of the others, where it has more."""
    try:
        a2a = _all_to_alls(case)
    except CannotAnswer:
        return {}
    if a2a.height == 0:
        return {}
    a2a = a2a.with_columns(
        ((pl.col("own_bytes").sum() - pl.col("own_bytes")) / (pl.len() - 1)).over("meeting").alias("others")
    )
    # Bytes weigh by size: counts of tokens, sent ahead, are as long everywhere.
    more = a2a.group_by("rank").agg((pl.col("own_bytes").sum() / pl.col("others").sum()).alias("more"))
    return {int(r): float(x) for r, x in more.iter_rows() if x >= MORE_TOKENS.value}


def heavy(case: Case) -> dict[int, float]:
    """By rank: the same, of ranks that also compute longer than their peers; else nobody waits for them."""
    beyond = case.once(beyond_peers)
    return {rank: more for rank, more in case.once(loads).items() if rank in beyond}


def kept(case: Case) -> dict[int, float]:
    """By rank with too many tokens: the share of its excess over the others that is left to it in an even group.

    Tokens do not vanish: where the group has as many in all as other groups have, an even share is the mean. Where the
    rank has them on top, an even share is what ranks of other groups have.
    """
    a2a = _all_to_alls(case)
    groups = a2a.group_by("communicator").agg(pl.col("own_bytes").mean().alias("mean"), pl.col("rank").unique())
    by_rank = dict(a2a.group_by("rank").agg(pl.col("own_bytes").mean()).iter_rows())
    shares = {}
    for rank, more in case.once(heavy).items():
        group = groups.filter(pl.col("rank").list.contains(rank)).row(0, named=True)
        rest = groups.filter(pl.col("communicator") != group["communicator"])["mean"]
        low, high = by_rank[rank] / more, by_rank[rank]
        even = float(rest.median()) if len(rest) else group["mean"]  # type: ignore[arg-type]
        even = even if low / MORE_TOKENS.value <= even < high else group["mean"]
        shares[rank] = min(max((even - low) / (high - low), 0.0), 1.0)
    return shares


def _all_to_alls(case: Case) -> pl.DataFrame:
    return case.once(sides).filter((pl.col("kind") == ALL_TO_ALL) & (pl.col("present") > 1) & (pl.col("own_bytes") > 0))
