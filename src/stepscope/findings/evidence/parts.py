"""Communication of the step by stage; where it is in none, by what it serves, else by its operation.

A collective on a stream that also computes is in order with that compute, and in no part (semantics §2).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Literal

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.accounting.exposure import comm_ops, exposed_wall
from stepscope.derive.comm.calls import operations
from stepscope.derive.comm.kinds import OPERATIONS
from stepscope.derive.comm.purpose import UNKNOWN, purpose_of, unanimous
from stepscope.derive.peers.links import FEWEST_TRANSFERS
from stepscope.derive.rank.data import NO_STAGE, RankData, ranks_of
from stepscope.derive.windows.window import Window
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.evidence.meetings import sides
from stepscope.intervals import Spans, union
from stepscope.intervals.arrays import I64
from stepscope.model.profile import Profile
from stepscope.model.threshold import Threshold

UNWAITED_TRANSFERS = Threshold(
    25.0,
    "% of the transfers",
    "of transfers that are not matched, the shorter ones waited least for others: the lower quartile",
    ("public/a100_nccl_metadata_world2.json.gz", "decision 0015"),
)


#: Communication of which not even the operation is known.
UNTOLD = "communication"
WORDS = {
    "ep_a2a": "the experts' all-to-all",
    "ep_meta": "the experts' token counts",
    "pp_p2p": "the pipeline's send/recv",
    "cp_ring": "the context-parallel ring",
    "tp": "tensor-parallel communication",
    "dp": "data-parallel communication",
    "dp_grads": "gradient reduction",
    "dp_params": "parameter gathering",
}


class Part(Struct, frozen=True):
    """What one rank has of one kind."""

    ops: I64
    exposed: I64
    comm_ns: int
    wall_ns: int  # exposed, where ops side by side count once
    serves: str = UNKNOWN  # the purpose that all of it shares


def parts(case: Case) -> dict[int, dict[str, Part]]:
    """By rank and kind."""
    return case.each_rank(_parts)


def told_by(key: str) -> Literal["stage", "purpose", "op"]:
    """What a kind is named by; stages are called as the trainer's labels say."""
    return "purpose" if key in WORDS else "op" if key in (*OPERATIONS, UNTOLD) else "stage"


def said(key: str) -> str:
    """A kind in words."""
    if told_by(key) == "stage":
        return f"communication of {key}"
    return WORDS.get(key, f"{key.replace('_', '-')}s")


def verb(key: str) -> str:
    """What goes with it in a sentence: operations are many, a purpose is one."""
    return "are" if told_by(key) == "op" and key != UNTOLD else "is"


def spans_of(case: Case, ops: Mapping[int, I64]) -> dict[int, Spans]:
    """When these ops of each rank ran."""
    return {d.rank: union(d.start[ops[d.rank]], d.end[ops[d.rank]]) for d in ranks_of(case.profile) if d.rank in ops}


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
    kind = operations(data, comm.ops).fill_null(UNTOLD)
    key = pl.select(
        pl.when(stage != NO_STAGE).then(stage).when(purpose != UNKNOWN).then(purpose).otherwise(kind).alias("key")
    ).to_series()
    by_kind = {}
    for text in key.unique().sort().to_list():
        of_kind = (key == text).to_numpy() & ~comm.barrier
        if of_kind.any():
            serves = unanimous(purpose.filter(pl.Series(of_kind)))
            by_kind[str(text)] = _part(data, comm.ops[of_kind], comm.exposed[of_kind], serves)
    return by_kind


def _part(data: RankData, ops: I64, exposed: I64, serves: str) -> Part:
    start, end = data.start[ops], data.end[ops]
    return Part(ops, exposed, int((end - start).sum()), exposed_wall(start, end, data.compute), serves)


def together(case: Case, but: Container[str]) -> tuple[dict[int, dict[str, Part]], dict[str, list[str]]]:
    """The same without some kinds, where stages that serve the same purpose on all ranks are one kind: they have one
    remedy. And the stages of each kind that has several."""
    by_rank = {r: {k: p for k, p in of.items() if k not in but} for r, of in case.once(parts).items()}
    serves: dict[str, set[str]] = {}
    for kinds in by_rank.values():
        for key, of_kind in kinds.items():
            serves.setdefault(key, set()).add(key if key in WORDS else of_kind.serves)
    purpose = {key: next(iter(of)) for key, of in serves.items() if len(of) == 1}
    joined = {key: of for key, of in purpose.items() if of in WORDS}
    several = {of for of in joined.values() if list(joined.values()).count(of) > 1}
    into = {key: of for key, of in joined.items() if of in several}
    stages = {of: sorted(k for k, at in into.items() if at == of and told_by(k) == "stage") for of in several}
    datas = {d.rank: d for d in ranks_of(case.profile)}
    return {r: _joined(datas[r], of, into) for r, of in by_rank.items()}, stages


def _joined(data: RankData, kinds: Mapping[str, Part], into: Mapping[str, str]) -> dict[str, Part]:
    merged: dict[str, list[Part]] = {}
    for key, of_kind in kinds.items():
        merged.setdefault(into.get(key, key), []).append(of_kind)
    return {key: of[0] if len(of) == 1 else _one(data, of) for key, of in merged.items()}


def _one(data: RankData, of: list[Part]) -> Part:
    ops, exposed = (np.concatenate(arrays) for arrays in zip(*((p.ops, p.exposed) for p in of), strict=True))
    return _part(data, ops, exposed, of[0].serves)


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
    usual = _usual(case, by_rank, table)
    exposed, matched, asked = [], 0, 0
    for data in ranks_of(case.profile):
        if data.rank not in by_rank:
            continue
        ops = by_rank[data.rank]
        of = lengths.filter(pl.col("rank") == data.rank)
        at = pl.DataFrame({"op": ops}).join(of, on="op", how="left", maintain_order="left")["ns"]
        length = pl.select(pl.coalesce(at, usual[data.rank])).to_series().to_numpy()
        start = np.maximum(data.end[ops] - np.minimum(length, data.end[ops] - data.start[ops]), data.start[ops])
        exposed.append(exposed_wall(start, data.end[ops], data.compute))
        matched, asked = matched + len(at) - at.null_count(), asked + len(at)
    return exposed, 2 * matched > asked


def _usual(case: Case, by_rank: Mapping[int, I64], table: pl.DataFrame) -> dict[int, pl.Series]:
    """By rank: how long each transfer would take without waiting, by its like, of the same name and size.

    The shorter ones of many wait least. Where there are few, nothing tells: then all that they take.
    """
    size = table.group_by("rank", "op").agg(pl.col("own_bytes").max())
    frames = []
    for data in ranks_of(case.profile):
        if data.rank in by_rank:
            ops = by_rank[data.rank]
            frame = pl.DataFrame({"op": ops, "name": data.name[ops], "took": (data.end - data.start)[ops]})
            frames.append(frame.with_columns(pl.lit(data.rank, table["rank"].dtype).alias("rank")))
    table = pl.concat(frames).join(size, on=["rank", "op"], how="left", maintain_order="left")
    like = ["name", "own_bytes"]
    shorter = pl.col("took").quantile(UNWAITED_TRANSFERS.share).over(like).cast(pl.Int64)
    many = pl.len().over(like) >= FEWEST_TRANSFERS.value
    table = table.with_columns(pl.when(many).then(shorter).otherwise("took").alias("usual"))
    return {int(key[0]): frame["usual"] for key, frame in table.partition_by("rank", as_dict=True).items()}


def _walls(case: Case, by_rank: Mapping[int, I64]) -> list[int]:
    """All that these ops expose, by rank."""
    return [
        exposed_wall(d.start[by_rank[d.rank]], d.end[by_rank[d.rank]], d.compute)
        for d in ranks_of(case.profile)
        if d.rank in by_rank
    ]
