"""How communication was issued: what waits for it, and when; and which of it shares a stream with compute.

A wait of a compute stream is `at once` where nothing was launched on that stream since the communication was. It is
too early where the same stream waits for the same op again, later, with compute launched in between; or where the op
reduces gradients, which nothing but the optimizer needs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from stepscope.derive.comm.axes import gradient_groups
from stepscope.derive.comm.kinds import ALL_REDUCE, REDUCE_SCATTER
from stepscope.derive.rank.cuda_calls import Family, of_family
from stepscope.derive.rank.data import COMM, COMPUTE, RankData
from stepscope.derive.rank.events import records_of
from stepscope.derive.rank.streams import in_order_with_compute
from stepscope.derive.windows.window import Window
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.evidence.meetings import met, sides
from stepscope.findings.evidence.parts import parts
from stepscope.intervals.arrays import I64, NONE, Mask
from stepscope.model.profile import Profile
from stepscope.model.threshold import Threshold

WAITED_AT_ONCE = Threshold(
    90.0,
    "% of a stage's communication",
    "100 where everything is waited for at once, up to 67 where compute runs beside it",
    (
        "h200/moe4mps/serialized.sqlite",
        "h200/moe4mps/overlapped.sqlite",
        "tests/findings/test_faults_across.py::test_serialized",
    ),
)
MOSTLY_EXPOSED = Threshold(
    50.0,
    "% of a stage's communication",
    "what is waited for at once but hidden all the same, by other work, is not serialized",
    ("h200/moe4/serialized.sqlite",),
)


class Serialized(Struct, frozen=True):
    """Of one rank: ops waited for too early with the rows of those waits in `syncs`, and ops on the compute stream."""

    waits: I64
    waited: I64
    inline: I64
    lane: I64
    gradients: int  # of the ops: reductions that only the optimizer needs
    at_once: I64  # all ops that are waited for as soon as they are launched


def serialized(case: Case) -> dict[int, Serialized]:
    """What each rank serializes."""
    if not case.profile.has("syncs"):
        return case.each_rank(_by_calls) if case.profile.has("calls") else {}
    group = _groups(case)
    issued = case.each_rank(lambda _, d, w: _of_rank(d, w, group.get(d.rank)))
    return {rank: of_rank for rank, of_rank in issued.items() if of_rank is not None}


def at_once(case: Case) -> set[str]:
    """Kinds of communication (`parts`) that are waited for at once on all ranks."""
    issued = case.once(serialized)
    kinds: dict[str, bool] = {}
    for rank, of_rank in case.once(parts).items():
        for kind, part in of_rank.items():
            s = issued.get(rank)
            early = s is not None and _most(np.isin(part.ops, s.at_once))
            early &= int(part.exposed.sum()) > MOSTLY_EXPOSED.share * part.comm_ns
            kinds[kind] = kinds.get(kind, True) and early
    return {kind for kind, early in kinds.items() if early and kind != "pp_p2p"}


def _most(mask: Mask) -> bool:
    return bool(mask.mean() > WAITED_AT_ONCE.share) if len(mask) else False


def _groups(case: Case) -> dict[int, pl.DataFrame]:
    """By rank: op, a number of its communicator and operation, and whether it is a reduction of gradients."""
    try:
        table, across = case.once(sides), met(case)
    except CannotAnswer:
        return {}
    names = sorted(gradient_groups(across.matched.communicators, case.profile.ranks))
    table = table.select(
        "rank",
        "op",
        pl.struct("communicator", "kind").rank("dense").cast(pl.Int64).alias("lane"),
        (pl.col("kind").is_in([ALL_REDUCE, REDUCE_SCATTER]) & pl.col("communicator").is_in(names)).alias("gradient"),
    ).unique(["rank", "op"], keep="first")
    # The optimizer needs the last one of a step at once.
    key = ["rank", "lane"]
    nth, count = pl.col("op").rank("ordinal").over(key), pl.len().over(key)
    table = table.with_columns(pl.col("gradient") & (nth < count))
    return {int(key[0]): frame for key, frame in table.partition_by("rank", as_dict=True).items()}


def _of_rank(data: RankData, window: Window, group: pl.DataFrame | None) -> Serialized | None:
    waits = _waits(data)
    inside = np.zeros(len(data.start), dtype=bool)
    inside[window.ops] = True
    gradient, lane = np.zeros(len(data.start), dtype=bool), np.zeros(len(data.start), np.int64)
    if group is not None:
        gradient[group["op"].to_numpy()] = group["gradient"].to_numpy()
        lane[group["op"].to_numpy()] = group["lane"].to_numpy()
    waits = waits.filter(pl.Series(inside[waits["op"].to_numpy()])) if waits.height else waits
    if waits.height == 0:
        return None
    computing = np.unique(data.stream[window.ops[in_order_with_compute(data, window.ops)]])
    waits = waits.filter(pl.col("by").is_in(computing.tolist()))
    op, by, of = (waits[c].to_numpy() for c in ("op", "by", "of"))
    launched = data.launched_at
    compute_at = {s: np.sort(launched[(data.role == COMPUTE) & (data.stream == s)]) for s in computing.tolist()}

    def launches(stream: I64, lo: I64, hi: I64) -> I64:
        """Compute launched on a stream between two moments."""
        count = np.zeros(len(lo), np.int64)
        for s, at in compute_at.items():
            here = stream == s
            count[here] = np.searchsorted(at, hi[here]) - np.searchsorted(at, lo[here])
        return count

    time = waits["start_ns"].to_numpy()
    other = by != of
    at_once = other & (launches(by, launched[op], time) == 0)
    # The last wait of a stream for the op is its consumer's; compute between the two is what could run beside it.
    last = waits.select(pl.col("start_ns").max().over("op", "by"))["start_ns"].to_numpy()
    again = at_once & (last > time) & (launches(by, time, last) > 0)
    # Gradients: a later wait for that stream, after more compute, is enough.
    final = waits.select(pl.col("start_ns").max().over("of", "by"))["start_ns"].to_numpy()
    grads = at_once & ~again & gradient[op] & (launches(by, time, final) > 0)
    early = again | grads
    inline = _inline(data, window, waits, gradient, computing)
    return Serialized(
        waits["row"].to_numpy()[early],
        np.unique(op[early]),
        inline,
        lane[inline],
        int(len(np.unique(op[grads])) + gradient[inline].sum()),
        np.unique(op[at_once]),
    )


def _waits(data: RankData) -> pl.DataFrame:
    """Waits of streams for events behind communication: row of `syncs`, start_ns, by, of (streams), and the op."""
    syncs, record = data.syncs, records_of(data)
    rows = np.flatnonzero((syncs["kind"] == "stream_wait").to_numpy() & (record != NONE))
    stream, time = syncs["stream"].cast(pl.Int64), syncs["start_ns"]
    met = pl.DataFrame(
        {
            "row": rows,
            "start_ns": time.gather(rows),
            "by": stream.gather(rows),
            "of": stream.gather(record[rows]),
            "at": time.gather(record[rows]),
        }
    ).drop_nulls(["by", "of"])
    ops = pl.DataFrame(
        {
            "op": np.arange(len(data.start)),
            "of": data.stream.astype(np.int64),
            "at": data.launched_at,
            "role": data.role,
        }
    )
    ops = ops.filter(pl.col("of").is_in(met["of"].unique().implode())).sort("at")
    met = met.sort("at").join_asof(ops, on="at", by="of", strategy="backward", check_sortedness=False).drop_nulls("op")
    met = met.filter(pl.col("role") == COMM).sort("start_ns", "row")
    return met.select(pl.col("row").cast(pl.Int64), "start_ns", "by", "of", pl.col("op").cast(pl.Int64))


def _inline(
    data: RankData, window: Window, waits: pl.DataFrame, gradient: Mask, computing: npt.NDArray[np.int32]
) -> I64:
    """Ops on a compute stream that the stream itself waits for, later; and reductions of gradients like them."""
    by_itself = waits.filter(pl.col("by") == pl.col("of"))
    if by_itself.height == 0:
        return np.empty(0, np.int64)
    waited = by_itself["op"].to_numpy()
    comm = window.ops[data.role[window.ops] == COMM]
    comm = comm[np.isin(data.stream[comm], computing)]
    until = by_itself.group_by("of").agg(pl.col("start_ns").max())
    last = dict(until.iter_rows())
    end = np.array([last.get(int(s), NONE) for s in data.stream[comm].tolist()], dtype=np.int64)
    grads = comm[gradient[comm] & (data.launched_at[comm] < end)]
    inline: I64 = np.union1d(waited, grads).astype(np.int64)
    return inline


def _by_calls(profile: Profile, data: RankData, window: Window) -> Serialized:
    """Without records of who waits for what: ops after whose launch a stream was made to wait, before the next launch.

    Where that is communication too, once more: before it launches any, a framework makes that wait for compute.
    """
    nothing = np.empty(0, np.int64)
    tid = data.calls["tid"].cast(pl.Int64).to_numpy()
    order = np.argsort(tid, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    waiting = of_family(data, Family.STREAM_WAIT)
    before = np.r_[0, np.cumsum(waiting[order])]
    linked = np.flatnonzero(data.launch != NONE)
    linked = linked[np.argsort(place[data.launch[linked]], kind="stable")]
    at = place[data.launch[linked]]
    comm = window.ops[(data.role[window.ops] == COMM) & (data.launch[window.ops] != NONE)]
    launched = place[data.launch[comm]]
    following = np.searchsorted(at, launched, side="right")
    if len(at) == 0 or not (data.role[linked] == COMPUTE).any():
        return Serialized(nothing, nothing, nothing, nothing, 0, nothing)
    there = following < len(at)
    then = np.minimum(following, max(len(at) - 1, 0))
    there &= tid[order][at[then]] == tid[order][launched]
    there &= before[at[then]] - before[launched] > (data.role[linked[then]] == COMM)
    # The wait may be for another op: then the compute that comes next does not start after this one.
    compute = linked[data.role[linked] == COMPUTE]
    after = np.searchsorted(place[data.launch[compute]], launched, side="right")
    there &= after < len(compute)
    there &= data.start[compute[np.minimum(after, max(len(compute) - 1, 0))]] >= data.end[comm]
    return Serialized(nothing, nothing, nothing, nothing, 0, comm[there])
