"""What communication is for by its pattern, where neither ranges nor names of groups tell.

Told by when it comes, beside kernels whose names say forward or backward, and by how a communicator is used:

- reductions that come in backward passes alone are of gradients (`dp_grads`): DDP's, FSDP's and ZeRO's;
- gathers of a communicator that also reduces gradients are of parameters (`dp_params`): FSDP's, ZeRO's;
- reductions within forward passes, too, are tensor parallelism's (`tp`), with its gathers; where nothing is trained,
  there are no gradients, and all reductions are;
- in a group whose name says that it is data-parallel, reductions are of gradients wherever they come, and gathers of
  parameters where the group also reduces;
- transfers that always send to one peer and receive as much from another are a ring (`cp_ring`): a pipeline's go back
  where they came from, and its first and last ones go one way.

Numbers (a loss, a norm) say nothing of what a communicator is for, and have no purpose.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.comm.calls import all_sides
from stepscope.derive.comm.kinds import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, SEND_RECV
from stepscope.derive.rank.data import COMPUTE, RankData
from stepscope.derive.rank.together import part, parts
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
    return pl.Series("purpose", [purposes.get(op) for op in ops.tolist()], dtype=pl.String)


def _purposes(data: RankData) -> dict[int, str]:
    """Ops and purposes of all communicators of a rank."""
    bulk = part(data, _bulk)
    op, communicator = bulk["op"].to_numpy(), bulk["nth"].to_numpy()
    reduces, gathers, moves = (bulk[c].to_numpy() for c in ("reduces", "gathers", "moves"))
    purposes: dict[int, str] = {}
    for nth in np.unique(communicator):
        mine = communicator == nth
        reductions = op[mine & reduces]
        served = _reduces(data, reductions) if len(reductions) >= _FEWEST.count else None
        if served is not None:
            _serve(purposes, reductions, served)
            _serve(purposes, op[mine & gathers], DP_PARAMS if served == DP_GRADS else TP)
        if np.count_nonzero(mine & moves) >= 2 * _FEWEST.count and _is_ring(bulk.filter(mine & moves)):
            _serve(purposes, op[mine & moves], CP_RING)
    return purposes


def _bulk(ranks: list[RankData]) -> pl.DataFrame:
    """What communicators move, apart from numbers, with what is done; `nth` of them in the order of their first use."""
    sides = parts(ranks, all_sides).drop_nulls("communicator").with_row_index("nth")
    nth = pl.col("nth").first().over("rank", "communicator")
    does = {"reduces": [ALL_REDUCE, REDUCE_SCATTER], "gathers": [ALL_GATHER], "moves": [SEND_RECV]}
    bulk = sides.select("rank", "op", "kind", "bytes", "send", "peer", nth).filter(pl.col("bytes") > _NUMBERS.value)
    return bulk.with_columns(pl.col("kind").is_in(of).fill_null(False).alias(what) for what, of in does.items())


def in_data_parallel(ranks: list[RankData], ops: pl.DataFrame) -> pl.Series:
    """What each op would be for, were its communicator data-parallel; null of numbers, and where use says nothing."""
    bulk = parts(ranks, all_sides).filter(pl.col("bytes") > _NUMBERS.value)
    reduces = pl.col("kind").is_in([ALL_REDUCE, REDUCE_SCATTER])
    gathers = (pl.col("kind") == ALL_GATHER) & reduces.any().over("rank", "communicator")
    use = pl.when(reduces).then(pl.lit(DP_GRADS)).when(gathers).then(pl.lit(DP_PARAMS)).alias("use")
    uses = bulk.select("rank", "op", use).unique(["rank", "op"], keep="first")
    return ops.join(uses, on=["rank", "op"], how="left", maintain_order="left")["use"]


def _serve(purposes: dict[int, str], ops: I64, purpose: str) -> None:
    """What these ops are for, unless an earlier communicator of theirs told."""
    for op in ops.tolist():
        purposes.setdefault(op, purpose)


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


def _reduces(data: RankData, reductions: I64) -> str | None:
    """What a communicator reduces: gradients, or parts of activations; null where nothing tells passes apart."""
    at, which = data.once(_marks)
    if not (which == _BWD).any():
        return TP if (which == _FWD).any() else None
    if not (which == _FWD).any():
        return None
    nth = np.searchsorted(at, data.launched_at[reductions])
    before = np.where(nth > 0, which[np.maximum(nth - 1, 0)], 0)
    after = np.where(nth < len(which), which[np.minimum(nth, len(which) - 1)], 0)
    inside = (before == _FWD) & (after == _FWD)
    return TP if inside.mean() >= _IN_FORWARD.share else DP_GRADS


def _is_ring(transfers: pl.DataFrame) -> bool:
    """Whether every op sends to the same peer, and receives as much from another.

    Between two ranks nothing tells a ring from a pipeline that exchanges both ways at once.
    """
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
