"""Every communication op of a rank with its communicator, operation, bytes, peers and ordinal, and how that is known.

Three links, in this order: the metadata that Kineto puts on the kernel; the NCCL call, or torch's record of one, in
which the thread made the launch; and a group of calls, which launches at its outermost end and whose kernels carry all
its bytes, one per communicator in the order of the calls. What none reaches may still be matched by labels or order.

An op is one row per *side*: a collective has one, a batch of sends and receives one per transfer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.derive.comm.kinds import ALL_TO_ALL, PARTED, RECV, SEND, SEND_RECV, kinds
from stepscope.derive.rank.data import COMM, RankData
from stepscope.derive.rank.together import part, parts
from stepscope.intervals.arrays import I64, NONE, numbered, take
from stepscope.model.nesting import nest
from stepscope.model.profile import Profile

#: One row per side. Texts, not ids: these frames travel between processes.
SIDES: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int32,
    "op": pl.Int64,  # row within the rank's ops
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "launched_ns": pl.Int64,
    "stream": pl.Int32,
    "kernel": pl.String,  # operation by the kernel's name, null where that does not say
    "communicator": pl.String,
    "kind": pl.String,
    "bytes": pl.Int64,
    "parted": pl.Boolean,  # bytes are of one rank or peer, as NCCL states them
    "seq": pl.Int64,  # ordinal in the communicator; of a transfer, among those with its peer and direction
    "send": pl.Boolean,  # direction of a transfer, null for collectives
    "peer": pl.Int32,  # communicator rank of the other side (or the root)
    "purpose": pl.String,
    "known_by": pl.String,
}
#: What ranks say of their communicators.
GROUPS: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int32,
    "communicator": pl.String,
    "comm_rank": pl.Int32,
    "comm_size": pl.Int32,
    "members": pl.String,
    "name": pl.String,
    "known_by": pl.String,
}


def sides_of(profile: Profile, data: RankData) -> pl.DataFrame:
    """The `SIDES` of one rank, in order of launch; what they are for is left open."""
    return part(data, all_sides)


def all_sides(ranks: list[RankData]) -> pl.DataFrame:
    """The same of several ranks."""
    profile, ops = ranks[0].profile, parts(ranks, communication)
    kernel = kinds(profile.names.gather(ops["name"])) if ops.height else pl.Series("kind", [], dtype=pl.String)
    base = ops.select(*_RANK_OP, "start_ns", "end_ns", "launched_ns", "stream", kernel.alias("kernel"))
    table = base.join(parts(ranks, linked), on=_RANK_OP, how="left", maintain_order="left")
    table = table.with_columns(pl.coalesce("kind", "kernel").alias("kind"), pl.lit(None, pl.String).alias("purpose"))
    table = table.sort("rank", "launched_ns", "op", maintain_order=True)
    return table.select([pl.col(k).cast(t) for k, t in SIDES.items()])


def communication(ranks: list[RankData]) -> pl.DataFrame:
    """The communication ops of ranks, in order, with the thread that launched each."""
    return pl.concat([_ops(data) for data in ranks])


def _ops(data: RankData) -> pl.DataFrame:
    ops = np.flatnonzero(data.role == COMM)
    launch = data.launch[ops]
    tid = data.calls["tid"].cast(pl.Int64).to_numpy()
    return pl.DataFrame(
        {
            "rank": np.full(len(ops), data.rank, np.int32),
            "op": ops.astype(np.int64),
            "start_ns": data.start[ops],
            "end_ns": data.end[ops],
            "launched_ns": data.launched_at[ops],
            "stream": data.stream[ops],
            "name": data.name[ops],
            "launched": launch != NONE,
            "tid": take(tid, launch, NONE),
        }
    )


def operations(data: RankData, ops: I64) -> pl.Series:
    """The operation of each communication (`all_reduce`): as the program called it, else by its kernel; else null.

    A kernel's name is not enough: an all-to-all runs as `SendRecv`, and others' libraries name none.
    """
    sides = sides_of(data.profile, data).select("op", "kind")
    sides = sides.unique("op", keep="first", maintain_order=True)  # one of a group
    asked = pl.DataFrame({"op": ops}, schema={"op": pl.Int64})
    return asked.join(sides, on="op", how="left", maintain_order="left")["kind"]


_RANK_OP, _UNIT = ["rank", "op"], ["rank", "unit"]
_CALL = ("communicator", "kind", "bytes", "peer")
_LINKED = ("communicator", "kind", "bytes", "parted", "seq", "send", "peer", "known_by")


def groups_of(profile: Profile, data: RankData) -> pl.DataFrame:
    """The `GROUPS` of one rank: every communicator that it used or made."""
    return part(data, all_groups)


def all_groups(ranks: list[RankData]) -> pl.DataFrame:
    """The same of several ranks."""
    if (said := _said(ranks)) is None:
        return pl.DataFrame(schema=GROUPS)
    comms = said.drop_nulls("communicator")
    groups = comms.group_by("rank", "communicator", maintain_order=True).agg(
        pl.col("comm_rank").drop_nulls().last(),
        pl.col("comm_size").drop_nulls().max(),
        pl.col("members").drop_nulls().first(),
        pl.col("group_name").drop_nulls().first().alias("name"),
        pl.when(pl.col("members").is_not_null().any() | pl.col("correlation").is_not_null().any())
        .then(pl.lit("metadata"))
        .otherwise(pl.lit("payload"))
        .alias("known_by"),
    )
    return groups.select([pl.col(k).cast(t) for k, t in GROUPS.items()])


def _said(ranks: list[RankData]) -> pl.DataFrame | None:
    """`comms` of ranks, None where they have none."""
    profile = ranks[0].profile
    if not profile.has("comms") or profile.comms.height == 0:
        return None
    by_rank = profile.once(_comms)
    return pl.concat([by_rank[data.rank] for data in ranks])


def _comms(profile: Profile) -> dict[int, pl.DataFrame]:
    """By rank: `comms` with their row in it, texts for ids, and the operation of each call; of all ranks at once."""
    comms = _texts(profile, profile.comms, ("op", "communicator", "members", "group_name"))
    comms = comms.rename({"op": "call"}).with_columns(kinds(comms["op"]).alias("kind"))
    comms = comms.with_columns(row=pl.int_range(pl.len(), dtype=pl.Int64).over("rank"))
    return {rank: comms[first:last] for rank, (first, last) in profile.bounds(comms)}


def _texts(profile: Profile, frame: pl.DataFrame, columns: tuple[str, ...]) -> pl.DataFrame:
    """Ids of the string table as texts."""
    names = profile.names
    empty = pl.Series([None] * frame.height, dtype=pl.String)
    return frame.with_columns(
        (
            pl.select(pl.when(frame[c].is_not_null()).then(names.gather(frame[c].fill_null(0)))).to_series()
            if len(names)
            else empty
        ).alias(c)
        for c in columns
    )


def linked(ranks: list[RankData]) -> pl.DataFrame:
    """What `comms` say of the communication ops of ranks: per op, or per op and transfer."""
    comms = _said(ranks)
    if comms is None or comms.height == 0:
        return pl.DataFrame(schema={k: SIDES[k] for k in (*_RANK_OP, *_LINKED)})
    ops = parts(ranks, communication)
    on_host = comms["correlation"].is_null()
    host = comms.filter(pl.col("tid").is_not_null() & on_host)
    if on_host.all():
        return _sides(_by_call(ops, host, np.empty(0, np.int32)))
    on_kernel = _on_kernels(ranks, comms.filter(~on_host & pl.col("kind").is_not_null()))
    rest = ops.join(on_kernel, on=_RANK_OP, how="anti", maintain_order="left")
    units = [on_kernel, _by_call(rest, host, on_kernel["rank"].unique().to_numpy())]
    return _sides(pl.concat(units, how="diagonal"))


def _on_kernels(ranks: list[RankData], comms: pl.DataFrame) -> pl.DataFrame:
    """Metadata that sits on the kernel itself."""
    frames = [part(data, communication) for data in ranks]
    ids = pl.concat([data.ops["correlation"].gather(ops["op"]) for data, ops in zip(ranks, frames, strict=True)])
    mine = pl.concat(frames).select(*_RANK_OP, pl.col("launched_ns").alias("at"), ids.alias("correlation"))
    key = ["rank", "correlation"]
    joined = mine.join(comms.unique(key, keep="first"), on=key, how="inner", maintain_order="left")
    return joined.select(*_RANK_OP, "at", pl.col("op").alias("unit"), *_CALL, pl.lit("metadata").alias("known_by"))


def _by_call(ops: pl.DataFrame, host: pl.DataFrame, partly: npt.NDArray[np.int32]) -> pl.DataFrame:
    """Ops launched within a call, or at the end of a group of calls.

    Calls without a kernel are units too, with a null op: ordinals count calls, so that a kernel missing from the trace
    does not shift those after it. Not so of ranks that are known but `partly` by their calls.
    """
    ops = ops.filter("launched")
    op, at, of = (ops[c].to_numpy() for c in ("op", "launched_ns", "rank"))
    start, end, depth, rank = (host[c].cast(pl.Int64).to_numpy() for c in ("start_ns", "end_ns", "depth", "rank"))
    _, tids = numbered(np.concatenate([host["tid"].cast(pl.Int64).to_numpy(), ops["tid"].to_numpy()]))
    threads = np.concatenate([rank, of]) * (len(tids) + 1) + tids  # of all ranks
    thread, launching = threads[: len(rank)], threads[len(rank) :]
    inside = nest(thread, start, end).enclosing(launching, at)
    plain = host["call"].str.strip_prefix("nccl")
    ends = (plain == "GroupEnd").to_numpy() & (depth == 0)
    moves = host["kind"].is_not_null().to_numpy()
    every = ~np.isin(rank, partly)
    # NCCL's calls have names with its prefix; torch's records are metadata.
    known_by = pl.when(pl.col("call").str.starts_with("nccl")).then(pl.lit("payload")).otherwise(pl.lit("metadata"))
    own = take(moves, inside, False)
    first = np.full(len(rank), NONE, dtype=np.int64)
    first[inside[own][::-1]] = op[own][::-1]  # of several the first
    host = host.with_columns(known_by.alias("known_by"), thread=thread, every=every, op=first)
    alone = host.filter(moves & (depth == 0) & (every | (first != NONE)))
    op_or_none = pl.when(pl.col("op") != NONE).then("op").alias("op")
    unit = (-1 - pl.col("row")).alias("unit")
    units = alone.select("rank", op_or_none, pl.col("start_ns").alias("at"), unit, *_CALL, "known_by")
    if not (grouped := moves & (depth > 0)).any():
        return units
    free = (inside == NONE) & ~np.isin(of, rank[ends])  # torch records no end of a group: its launch is the end
    close = take(start, inside, 0)
    close[free] = at[free]
    mine = free | take(ends, inside, False)
    launched = pl.DataFrame({"op": op[mine], "thread": launching[mine], "at": at[mine], "close": close[mine]})
    closing = pl.DataFrame({"thread": np.r_[thread[ends], launching[free]], "close": np.r_[start[ends], at[free]]})
    return pl.concat([units, _grouped(host.filter(grouped), closing, launched)], how="diagonal_relaxed")


def _grouped(parts: pl.DataFrame, closing: pl.DataFrame, launched: pl.DataFrame) -> pl.DataFrame:
    """Calls inside groups, joined to the kernels that the end of their group launched."""
    calls = parts.drop("op").sort("start_ns", maintain_order=True)
    calls = calls.join_asof(
        closing.unique().sort("close"),
        left_on="start_ns",
        right_on="close",
        by="thread",
        strategy="forward",
        check_sortedness=False,
    ).drop_nulls("close")
    group = ["thread", "close"]
    calls = calls.with_columns(
        # Which communicator of the group: the first one called is 0; unknown ones are one.
        pl.col("communicator").fill_null("").rank("dense").over(group).alias("dense"),
        pl.int_range(pl.len()).over(group).alias("nth"),
        pl.len().over(group).alias("n_calls"),
    )
    first = calls.group_by([*group, "dense"]).agg(pl.col("nth").min().alias("first"))
    first = first.with_columns(pl.col("first").rank("ordinal").over(group).cast(pl.Int64).alias("nth_comm") - 1)
    calls = calls.join(first.drop("first"), on=[*group, "dense"], how="left", maintain_order="left")
    launched = launched.sort("at", "op").with_columns(
        pl.int_range(pl.len()).over(group).alias("nth_op"), pl.len().over(group).alias("n_ops")
    )
    counts = launched.select(*group, "n_ops").unique()
    calls = calls.join(counts, on=group, how="left", maintain_order="left").with_columns(
        (pl.col("nth_comm").max().over(group) + 1).alias("n_comms")
    )
    # One kernel holds all; as many kernels as communicators, one each; as many as calls, one each; else nobody knows.
    place = (
        pl.when(pl.col("n_ops") == 1)
        .then(0)
        .when(pl.col("n_ops") == pl.col("n_comms"))
        .then("nth_comm")
        .when(pl.col("n_ops") == pl.col("n_calls"))
        .then("nth")
    )
    calls = calls.with_columns(place.cast(pl.Int64).alias("nth_op"))
    calls = calls.join(
        launched.select(*group, "op", pl.col("nth_op").cast(pl.Int64)),
        on=[*group, "nth_op"],
        how="left",
        maintain_order="left",
    )
    calls = calls.filter(pl.col("op").is_not_null() | pl.col("every"))
    unit = pl.coalesce(pl.col("op"), -1 - pl.col("row").min().over(*group, "dense"))
    return calls.select(*_RANK_OP, pl.col("start_ns").alias("at"), unit.alias("unit"), *_CALL, "known_by")


def _sides(units: pl.DataFrame) -> pl.DataFrame:
    """The calls of one unit become one collective, or one side per transfer; with ordinals."""
    two = pl.col("kind").is_in([SEND, RECV])
    units = units.sort("rank", "at", maintain_order=True).with_columns(two.all().over(_UNIT).alias("p2p"))
    units = units.with_columns(_is_all_to_all(units).alias("exchange"))
    grouped = (
        units.filter(~pl.col("p2p") | pl.col("exchange"))
        .group_by(_UNIT, maintain_order=True)
        .agg(
            pl.col("op").first(),
            pl.col("communicator").first(),
            pl.when(pl.col("exchange").first())
            .then(pl.lit(ALL_TO_ALL))
            .when(pl.col("kind").n_unique() == 1)
            .then(pl.col("kind").first())
            .alias("kind"),
            pl.when(pl.col("exchange").first())
            .then(pl.col("bytes").filter(pl.col("kind") == SEND).sum())
            .when(pl.col("bytes").is_not_null().all())
            .then(pl.col("bytes").sum())
            .alias("bytes"),
            pl.col("peer").first(),
            pl.col("exchange").first(),
            pl.col("known_by").first(),
        )
        .with_columns(
            ((pl.col("known_by") == "payload") & pl.col("kind").is_in(PARTED) & ~pl.col("exchange")).alias("parted"),
            pl.int_range(pl.len()).over("rank", "communicator").alias("seq"),
            pl.lit(None, pl.Boolean).alias("send"),
        )
    )
    transfers = units.filter(pl.col("p2p") & ~pl.col("exchange")).with_columns(
        (pl.col("kind") == SEND).alias("send"), pl.lit(False).alias("parted")
    )
    transfers = transfers.with_columns(
        pl.int_range(pl.len()).over("rank", "communicator", "peer", "send").alias("seq"),
        pl.lit(SEND_RECV).alias("kind"),
    )
    known = pl.when(pl.col("communicator").is_not_null()).then("known_by").alias("known_by")
    both = pl.concat([f.select(*_RANK_OP, *_LINKED) for f in (grouped, transfers)], how="vertical_relaxed")
    return both.drop_nulls("op").with_columns(known).sort("rank", maintain_order=True)


def _is_all_to_all(units: pl.DataFrame) -> pl.Series:
    """Whether a unit sends to every rank of its communicator, itself too, and receives from each."""
    if not units["p2p"].any():
        return pl.repeat(False, units.height, dtype=pl.Boolean, eager=True)
    part = (
        units.filter("p2p")
        .group_by(_UNIT)
        .agg(
            pl.col("peer").filter(pl.col("kind") == SEND).sort().alias("to"),
            pl.col("peer").filter(pl.col("kind") == RECV).sort().alias("from"),
        )
        .with_columns(pl.col("to").list.len().alias("n"))
    )
    counted = pl.int_ranges(pl.col("n")).cast(pl.List(pl.Int32))
    all_of_them = (pl.col("n") >= 2) & (pl.col("to") == pl.col("from")) & (pl.col("to") == counted)
    part = part.select(*_UNIT, all_of_them.alias("exchange"))
    return units.join(part, on=_UNIT, how="left", maintain_order="left")["exchange"].fill_null(False)
