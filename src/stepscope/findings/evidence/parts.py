"""Communication of the step by stage; where it is in none, by what it serves, else by its operation.

A collective on a stream that also computes is in order with that compute, and in no part (semantics §2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.derive.accounting.exposure import comm_ops
from stepscope.derive.comm.kinds import kinds
from stepscope.derive.comm.purpose import UNKNOWN, purpose_of
from stepscope.derive.rank.data import NO_STAGE, RankData, ranks_of
from stepscope.derive.windows.window import Window
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.evidence.meetings import sides
from stepscope.findings.thresholds import UNWAITED_TRANSFERS
from stepscope.intervals import subtract, union
from stepscope.intervals.arrays import I64
from stepscope.model.profile import Profile

WORDS = {
    "ep_a2a": "the experts' all-to-all",
    "ep_meta": "the experts' token counts",
    "pp_p2p": "the pipeline's send/recv",
    "cp_ring": "the context-parallel ring",
    "tp": "tensor-parallel communication",
    "dp": "data-parallel communication",
}


@dataclass(frozen=True)
class Part:
    """What one rank has of one kind."""

    ops: I64
    exposed: I64
    comm_ns: int
    wall_ns: int  # exposed, where ops side by side count once


def parts(case: Case) -> dict[int, dict[str, Part]]:
    """By rank and kind."""
    return case.each_rank(_parts)


def said(key: str) -> str:
    """A kind in words."""
    return WORDS.get(key, f"communication of {key}" if key.startswith("stage") else f"{key.replace('_', '-')}s")


def most_exposed(by_rank: Mapping[int, Part], most: int = 10) -> list[tuple[int, int]]:
    """Rank and op of those with most exposed."""
    worst = []
    for rank, part in by_rank.items():
        top = np.argsort(-part.exposed, kind="stable")[:most]
        worst += [(-int(part.exposed[i]), rank, int(part.ops[i])) for i in top.tolist()]
    return [(rank, op) for _, rank, op in sorted(worst)[:most]]


def _parts(profile: Profile, data: RankData, window: Window) -> dict[str, Part]:
    """By stage, purpose or operation."""
    comm = comm_ops(data, window)
    if len(comm.ops) == 0:
        return {}
    stage = data.stage_of(comm.ops)
    purpose = purpose_of(profile, data, comm.ops)
    names = profile.names.gather(data.name[comm.ops])
    kind = kinds(names).fill_null("communication")
    key = pl.select(
        pl.when(stage != NO_STAGE).then(stage).when(purpose != UNKNOWN).then(purpose).otherwise(kind).alias("key")
    ).to_series()
    by_kind = {}
    for text in key.unique().sort().to_list():
        of_kind = (key == text).to_numpy() & ~comm.barrier
        if of_kind.any():
            wall = subtract(union(comm.start[of_kind], comm.end[of_kind]), data.compute).length()
            by_kind[str(text)] = Part(comm.ops[of_kind], comm.exposed[of_kind], int(comm.length[of_kind].sum()), wall)
    return by_kind


def exposed_transfers(case: Case, by_rank: Mapping[int, I64], shorter: Mapping[int, int]) -> tuple[list[int], bool]:
    """By rank, what these ops expose from the last arrival on; and whether that is known for most of them.

    `shorter` is what other findings take off transfers, by meeting.
    """
    try:
        table = case.once(sides)
    except CannotAnswer:
        return _walls(case, by_rank), False
    less = pl.DataFrame(list(shorter.items()), schema={"meeting": pl.Int64, "less": pl.Int64}, orient="row")
    whole = table.filter(pl.col("present") == pl.col("size")).join(less, on="meeting", how="left")
    lengths = whole.group_by("rank", "op").agg((pl.col("ns") - pl.col("less").fill_null(0)).min().clip(0))
    # Of those that are not matched, the shorter ones wait least: what they take is what a transfer takes.
    took = np.concatenate([(d.end - d.start)[by_rank[d.rank]] for d in ranks_of(case.profile) if d.rank in by_rank])
    usual = int(np.quantile(took, UNWAITED_TRANSFERS.share)) if len(took) else 0
    exposed, matched, asked = [], 0, 0
    for data in ranks_of(case.profile):
        if data.rank not in by_rank:
            continue
        ops = by_rank[data.rank]
        of = lengths.filter(pl.col("rank") == data.rank)
        at = pl.DataFrame({"op": ops}).join(of, on="op", how="left", maintain_order="left")["ns"]
        length = at.fill_null(usual).to_numpy()
        start = np.maximum(data.end[ops] - np.minimum(length, data.end[ops] - data.start[ops]), data.start[ops])
        exposed.append(subtract(union(start, data.end[ops]), data.compute).length())
        matched, asked = matched + len(at) - at.null_count(), asked + len(at)
    return exposed, 2 * matched > asked


def _walls(case: Case, by_rank: Mapping[int, I64]) -> list[int]:
    """All that these ops expose, by rank."""
    return [
        subtract(union(d.start[by_rank[d.rank]], d.end[by_rank[d.rank]]), d.compute).length()
        for d in ranks_of(case.profile)
        if d.rank in by_rank
    ]
