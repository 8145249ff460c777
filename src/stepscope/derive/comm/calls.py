"""Every communication op of a rank with its communicator, operation, bytes, peers and ordinal, and how that is known.

Three links, in this order: the metadata that Kineto puts on the kernel; the NCCL call, or torch's record of one, in
which the thread made the launch; and a group of calls, which launches at its outermost end and whose kernels carry all
its bytes, one per communicator in the order of the calls. What none reaches may still be matched by labels or order.

An op is one row per *side*: a collective has one, a batch of sends and receives one per transfer.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.comm.kinds import ALL_TO_ALL, PARTED, RECV, SEND, SEND_RECV, kinds
from stepscope.derive.rank.data import COMM, RankData
from stepscope.intervals.arrays import I64, NONE
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
    return data.once(_sides_of)


def _sides_of(data: RankData) -> pl.DataFrame:
    profile = data.profile
    ops = np.flatnonzero(data.role == COMM)
    kernel = kinds(profile.names.gather(data.name[ops])) if len(ops) else pl.Series("kind", [], dtype=pl.String)
    base = pl.DataFrame(
        {
            "op": ops,
            "start_ns": data.start[ops],
            "end_ns": data.end[ops],
            "launched_ns": data.launched_at[ops],
            "stream": data.stream[ops],
            "kernel": kernel.alias("kernel"),
        },
        schema_overrides={"op": pl.Int64},
    )
    table = base.join(linked(profile, data), on="op", how="left", maintain_order="left")
    table = table.with_columns(
        pl.lit(data.rank, pl.Int32).alias("rank"),
        pl.coalesce("kind", "kernel").alias("kind"),
        pl.lit(None, pl.String).alias("purpose"),
    )
    return table.select([pl.col(k).cast(t) for k, t in SIDES.items()]).sort("launched_ns", "op", maintain_order=True)


def operations(data: RankData, ops: I64) -> pl.Series:
    """The operation of each communication (`all_reduce`): as the program called it, else by its kernel; else null.

    A kernel's name is not enough: an all-to-all runs as `SendRecv`, and others' libraries name none.
    """
    sides = data.once(_sides_of).select("op", "kind").unique("op", keep="first", maintain_order=True)  # one of a group
    asked = pl.DataFrame({"op": ops}, schema={"op": pl.Int64})
    return asked.join(sides, on="op", how="left", maintain_order="left")["kind"]


_CALL = ("communicator", "kind", "bytes", "peer")
_LINKED = ("communicator", "kind", "bytes", "parted", "seq", "send", "peer", "known_by")


def groups_of(profile: Profile, data: RankData) -> pl.DataFrame:
    """The `GROUPS` of one rank: every communicator that it used or made."""
    return data.once(_groups_of)


def _groups_of(data: RankData) -> pl.DataFrame:
    profile = data.profile
    if not profile.has("comms") or data.comms.height == 0:
        return pl.DataFrame(schema=GROUPS)
    comms = profile.once(_comms)[data.rank].drop_nulls("communicator")
    groups = comms.group_by("communicator", maintain_order=True).agg(
        pl.col("comm_rank").drop_nulls().last(),
        pl.col("comm_size").drop_nulls().max(),
        pl.col("members").drop_nulls().first(),
        pl.col("group_name").drop_nulls().first().alias("name"),
        pl.when(pl.col("members").is_not_null().any() | pl.col("correlation").is_not_null().any())
        .then(pl.lit("metadata"))
        .otherwise(pl.lit("payload"))
        .alias("known_by"),
    )
    return groups.with_columns(pl.lit(data.rank).alias("rank")).select([pl.col(k).cast(t) for k, t in GROUPS.items()])


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


def linked(profile: Profile, data: RankData) -> pl.DataFrame:
    """What the rank's `comms` say of its communication ops: per op, or per op and transfer. Computed once per rank."""
    return data.once(_linked)


def _linked(data: RankData) -> pl.DataFrame:
    profile = data.profile
    if not profile.has("comms") or data.comms.height == 0:
        return pl.DataFrame(schema={"op": pl.Int64, **{k: SIDES[k] for k in _LINKED}})
    ops = np.flatnonzero(data.role == COMM)
    comms = profile.once(_comms)[data.rank]
    on_kernel = _on_kernels(data, ops, comms.filter(pl.col("correlation").is_not_null() & pl.col("kind").is_not_null()))
    rest = ops[~np.isin(ops, on_kernel["op"].to_numpy())]
    host = comms.filter(pl.col("tid").is_not_null() & pl.col("correlation").is_null())
    every = on_kernel.height == 0
    units = pl.concat([on_kernel, _by_call(data, rest, host, every)], how="diagonal")
    return _sides(units)


def _on_kernels(data: RankData, ops: I64, comms: pl.DataFrame) -> pl.DataFrame:
    """Metadata that sits on the kernel itself."""
    mine = pl.DataFrame({"op": ops, "correlation": data.ops["correlation"].gather(ops), "at": data.launched_at[ops]})
    joined = mine.join(comms.unique("correlation", keep="first"), on="correlation", how="inner", maintain_order="left")
    return joined.select("op", "at", pl.col("op").alias("unit"), *_CALL, pl.lit("metadata").alias("known_by"))


def _by_call(data: RankData, ops: I64, host: pl.DataFrame, every: bool) -> pl.DataFrame:
    """Ops launched within a call, or at the end of a group of calls.

    With `every`, calls without a kernel are units too, with a null op: ordinals count calls, so that a kernel missing
    from the trace does not shift those after it.
    """
    # NCCL's calls have names with its prefix; torch's records are metadata.
    known_by = pl.when(pl.col("call").str.starts_with("nccl")).then(pl.lit("payload")).otherwise(pl.lit("metadata"))
    host = host.with_columns(known_by.alias("known_by"))
    ops = ops[data.launch[ops] != NONE]
    launch = data.launch[ops]
    at = data.calls["start_ns"].to_numpy()[launch] if len(ops) else np.empty(0, np.int64)
    tid = data.calls["tid"].cast(pl.Int64).to_numpy()[launch] if len(ops) else np.empty(0, np.int64)
    rows_tid, rows_start, rows_end = (host[c].cast(pl.Int64).to_numpy() for c in ("tid", "start_ns", "end_ns"))
    inside = nest(rows_tid, rows_start, rows_end).enclosing(tid, at)
    ends = (host["call"].str.replace("^nccl", "") == "GroupEnd").to_numpy() & (host["depth"] == 0).to_numpy()
    moves = host["kind"].is_not_null().to_numpy()
    own = (inside != NONE) & moves[np.maximum(inside, 0)] if host.height else np.zeros(len(ops), bool)
    single = pl.DataFrame({"op": ops[own], "row": host["row"].to_numpy()[inside[own]] if host.height else ops[own]})
    alone = host.filter(moves & (host["depth"] == 0).to_numpy())
    units = alone.join(single.unique("row", keep="first"), on="row", how="left" if every else "inner")
    units = units.select("op", pl.col("start_ns").alias("at"), (-1 - pl.col("row")).alias("unit"), *_CALL, "known_by")
    parts = host.filter(moves & (host["depth"] > 0).to_numpy())
    if parts.height == 0:
        return units
    closing = host.filter(ends).select("tid", "start_ns")
    if closing.height == 0:  # torch records no end of a group: its launch is the end
        free = inside == NONE
        closing = pl.DataFrame({"tid": tid[free], "start_ns": at[free]}, schema={"tid": pl.Int64, "start_ns": pl.Int64})
        launched = pl.DataFrame({"op": ops[free], "tid": tid[free], "at": at[free], "close": at[free]})
    else:
        mine = (inside != NONE) & ends[np.maximum(inside, 0)]
        launched = pl.DataFrame({"op": ops[mine], "tid": tid[mine], "at": at[mine], "close": rows_start[inside[mine]]})
    return pl.concat([units, _grouped(parts, closing, launched, every)], how="diagonal_relaxed")


def _grouped(parts: pl.DataFrame, closing: pl.DataFrame, launched: pl.DataFrame, every: bool) -> pl.DataFrame:
    """Calls inside groups, joined to the kernels that the end of their group launched."""
    closing = closing.select(pl.col("tid").cast(pl.Int64), pl.col("start_ns").alias("close")).unique().sort("close")
    calls = parts.with_columns(pl.col("tid").cast(pl.Int64)).sort("start_ns", maintain_order=True)
    calls = calls.join_asof(
        closing, left_on="start_ns", right_on="close", by="tid", strategy="forward", check_sortedness=False
    ).drop_nulls("close")
    group = ["tid", "close"]
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
    if not every:
        calls = calls.drop_nulls("op")
    unit = pl.coalesce(pl.col("op"), -1 - pl.col("row").min().over(*group, "dense"))
    return calls.select("op", pl.col("start_ns").alias("at"), unit.alias("unit"), *_CALL, "known_by")


def _sides(units: pl.DataFrame) -> pl.DataFrame:
    """The calls of one unit become one collective, or one side per transfer; with ordinals."""
    two = pl.col("kind").is_in([SEND, RECV])
    units = units.sort("at", maintain_order=True).with_columns(two.all().over("unit").alias("p2p"))
    units = units.with_columns(_is_all_to_all(units).alias("exchange"))
    grouped = (
        units.filter(~pl.col("p2p") | pl.col("exchange"))
        .group_by("unit", maintain_order=True)
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
            pl.int_range(pl.len()).over("communicator").alias("seq"),
            pl.lit(None, pl.Boolean).alias("send"),
        )
    )
    transfers = units.filter(pl.col("p2p") & ~pl.col("exchange")).with_columns(
        (pl.col("kind") == SEND).alias("send"), pl.lit(False).alias("parted")
    )
    transfers = transfers.with_columns(
        pl.int_range(pl.len()).over("communicator", "peer", "send").alias("seq"), pl.lit(SEND_RECV).alias("kind")
    )
    known = pl.when(pl.col("communicator").is_not_null()).then("known_by").alias("known_by")
    both = pl.concat([f.select("op", *_LINKED) for f in (grouped, transfers)], how="vertical_relaxed")
    return both.drop_nulls("op").with_columns(known)


def _is_all_to_all(units: pl.DataFrame) -> pl.Series:
    """Whether a unit sends to every rank of its communicator, itself too, and receives from each."""
    part = (
        units.filter("p2p")
        .group_by("unit")
        .agg(
            pl.col("peer").filter(pl.col("kind") == SEND).sort().alias("to"),
            pl.col("peer").filter(pl.col("kind") == RECV).sort().alias("from"),
        )
        .with_columns(pl.col("to").list.len().alias("n"))
    )
    counted = pl.int_ranges(pl.col("n")).cast(pl.List(pl.Int32))
    all_of_them = (pl.col("n") >= 2) & (pl.col("to") == pl.col("from")) & (pl.col("to") == counted)
    part = part.select("unit", all_of_them.alias("exchange"))
    return units.join(part, on="unit", how="left", maintain_order="left")["exchange"].fill_null(False)
