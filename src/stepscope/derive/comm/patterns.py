"""What communication is for by its pattern, where neither ranges nor names of groups tell.

Told by when it comes, beside kernels whose names say forward or backward, and by how a communicator is used:

- reductions that come in backward passes alone are of gradients (`dp_grads`): DDP's, FSDP's and ZeRO's;
- gathers of a communicator that also reduces gradients are of parameters (`dp_params`): FSDP's, ZeRO's;
- reductions within forward passes, too, are tensor parallelism's (`tp`), with its gathers; where nothing is trained,
  there are no gradients, and all reductions are;
- transfers that always send to one peer and receive as much from another are a ring (`cp_ring`): a pipeline's go back
  where they came from, and its first and last ones go one way.

Numbers (a loss, a norm) say nothing of what a communicator is for, and have no purpose.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.comm.calls import sides_of
from stepscope.derive.comm.kinds import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, SEND_RECV
from stepscope.derive.rank.data import COMPUTE, RankData
from stepscope.intervals.arrays import I64
from stepscope.model.threshold import Threshold

DP_GRADS, DP_PARAMS, TP, CP_RING = "dp_grads", "dp_params", "tp", "cp_ring"
#: Kernels of one pass alone, by their names.
_FORWARD, _BACKWARD = r"(?i)fwd|forward|fprop", r"(?i)bwd|backward|bprop|dgrad|wgrad"
_FWD, _BWD = 1, 2
_NUMBERS = Threshold(
    4096,
    "bytes",
    "a loss, a norm and counts of tokens have less; the smallest gradient of a layer has more",
    ("tests/derive/comm/test_patterns.py",),
)
_IN_FORWARD = Threshold(
    20.0,
    "% of a communicator's reductions",
    "within forward passes, from which on they are not of gradients; a bucket that is late is launched when "
    "the next pass has begun: one of many",
    ("tests/derive/comm/test_patterns.py",),
)
_FEWEST = Threshold(
    2,
    "reductions",
    "one alone may lie anywhere",
    ("tests/derive/comm/test_patterns.py",),
)


def by_pattern(data: RankData, ops: I64) -> pl.Series:
    """The purpose of each communication op; null where no pattern tells."""
    purposes = data.once(_purposes)
    asked = pl.DataFrame({"op": ops}, schema={"op": pl.Int64})
    return asked.join(purposes, on="op", how="left", maintain_order="left")["purpose"]


def _purposes(data: RankData) -> pl.DataFrame:
    """Ops and purposes of all communicators of a rank."""
    sides = sides_of(data.profile, data).drop_nulls("communicator")
    parts = [pl.DataFrame(schema={"op": pl.Int64, "purpose": pl.String})]
    marks = _marks(data) if sides.height else None
    for table in sides.partition_by("communicator", maintain_order=True):
        if marks is not None:
            parts += _of_communicator(data, table, marks)
    return pl.concat(parts).unique("op", keep="first", maintain_order=True)


def _of_communicator(data: RankData, table: pl.DataFrame, marks: tuple[I64, I64]) -> list[pl.DataFrame]:
    bulk = table.filter(pl.col("bytes") > _NUMBERS.value)
    reductions = bulk.filter(pl.col("kind").is_in([ALL_REDUCE, REDUCE_SCATTER]))
    gathers = bulk.filter(pl.col("kind") == ALL_GATHER)
    purposes = []
    if reductions.height >= _FEWEST.count:
        served = _reduces(data, reductions, marks)
        if served is not None:
            purposes.append(_all(reductions, served))
            purposes.append(_all(gathers, DP_PARAMS if served == DP_GRADS else TP))
    if _is_ring(transfers := bulk.filter(pl.col("kind") == SEND_RECV)):
        purposes.append(_all(transfers, CP_RING))
    return purposes


def _all(table: pl.DataFrame, purpose: str) -> pl.DataFrame:
    return table.select("op", pl.lit(purpose).alias("purpose"))


def _marks(data: RankData) -> tuple[I64, I64]:
    """Launches of kernels that are of one pass alone, in order: when, and of which."""
    of_name = data.per_name(_passes)
    compute = np.flatnonzero(data.role == COMPUTE)
    compute = compute[of_name[data.name[compute]] > 0]
    compute = compute[np.argsort(data.launched_at[compute], kind="stable")]
    return data.launched_at[compute], of_name[data.name[compute]]


def _passes(names: pl.Series) -> I64:
    table = pl.DataFrame({"name": names})
    backward, forward = pl.col("name").str.contains(_BACKWARD), pl.col("name").str.contains(_FORWARD)
    mark = pl.when(backward).then(_BWD).when(forward).then(_FWD).otherwise(0)
    return table.select(mark.fill_null(0).cast(pl.Int64)).to_series().to_numpy()


def _reduces(data: RankData, reductions: pl.DataFrame, marks: tuple[I64, I64]) -> str | None:
    """What a communicator reduces: gradients, or parts of activations; null where nothing tells passes apart."""
    at, which = marks
    if not (which == _BWD).any():
        return TP if (which == _FWD).any() else None
    if not (which == _FWD).any():
        return None
    nth = np.searchsorted(at, data.launched_at[reductions["op"].to_numpy()])
    before = np.where(nth > 0, which[np.maximum(nth - 1, 0)], 0)
    after = np.where(nth < len(which), which[np.minimum(nth, len(which) - 1)], 0)
    inside = (before == _FWD) & (after == _FWD)
    return TP if inside.mean() >= _IN_FORWARD.share else DP_GRADS


def _is_ring(transfers: pl.DataFrame) -> bool:
    """Whether every op sends to the same peer, and receives as much from another.

    Between two ranks nothing tells a ring from a pipeline that exchanges both ways at once.
    """
    if transfers.height < 2 * _FEWEST.count:
        return False
    peers = {
        bool(send): of["peer"].unique().to_list()
        for (send,), of in transfers.partition_by("send", as_dict=True).items()
    }
    if len(peers) < 2 or any(len(of) != 1 for of in peers.values()) or peers[True] == peers[False]:
        return False
    each = transfers.group_by("op").agg(
        pl.col("send").n_unique().alias("ways"), pl.col("bytes").n_unique().alias("sizes")
    )
    return bool(((each["ways"] == 2) & (each["sizes"] == 1)).all())
