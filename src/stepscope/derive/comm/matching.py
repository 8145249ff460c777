"""The same communication on all its ranks: the k-th of a communicator; transfers by pair, direction and ordinal.

What lacks a communicator is matched by setup labels (a stage's all-to-all is its ep group's), else by its order on its
stream, and only where counts and names agree on all ranks. What cannot be matched is counted, never guessed.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct, field

from stepscope.derive.comm.axes import AXIS_OF
from stepscope.derive.comm.communicators import Communicator, communicators
from stepscope.derive.comm.kinds import ALL_TO_ALL, SEND_RECV
from stepscope.intervals.arrays import I64
from stepscope.model.labels import label_groups, setups
from stepscope.model.note import Note, noted
from stepscope.model.ranks import ranks_text, some_ranks

_UNKNOWN = "unknown"


class Matched(Struct):
    """`meetings`, one row each; `sides`, sorted by (meeting, rank), whose `meeting` is the row of theirs."""

    meetings: pl.DataFrame
    sides: pl.DataFrame
    communicators: dict[str, Communicator]
    notes: list[Note] = field(default_factory=list)

    @property
    def first(self) -> I64:
        """First side of each meeting."""
        return np.searchsorted(self.sides["meeting"].to_numpy(), np.arange(self.meetings.height)).astype(np.int64)


def match(sides: pl.DataFrame, groups: pl.DataFrame, ranks: pl.DataFrame) -> Matched:
    """Match the sides of all ranks. `sides` and `groups` are those of `comm.calls`, of every rank; times rebased."""
    notes: list[Note] = []
    comms = communicators(groups, sides, ranks)
    sides = sides.with_columns(pl.col("kind").fill_null(_UNKNOWN)).with_row_index("side")
    named = sides.filter(pl.col("communicator").is_not_null())
    rest = sides.filter(pl.col("communicator").is_null())
    if rest.height:
        by_label, rest = _by_labels(rest, ranks, comms, notes)
        by_order = _by_order(rest, ranks, comms, notes)
        named = pl.concat([named, by_label, by_order], how="vertical_relaxed")
    pairs = _transfers(named.filter(pl.col("send").is_not_null()), comms, notes)
    whole = _shifted(named.filter(pl.col("send").is_null()), notes)
    both = pl.concat(
        [
            whole.with_columns(pl.lit(-1, pl.Int32).alias("src"), pl.lit(-1, pl.Int32).alias("dst")),
            pairs.with_columns(pl.lit(SEND_RECV).alias("kind")),
        ],
        how="diagonal_relaxed",
    )
    return _meetings(both, comms, notes)


def _transfers(sides: pl.DataFrame, comms: dict[str, Communicator], notes: list[Note]) -> pl.DataFrame:
    """Sends and receives with both ranks; self-sends are dropped."""
    numbering = pl.DataFrame(
        [(c, n, r) for c, comm in comms.items() for n, r in comm.numbering.items()],
        schema={"communicator": pl.String, "peer": pl.Int32, "other": pl.Int32},
        orient="row",
    )
    joined = sides.join(numbering, on=["communicator", "peer"], how="left", maintain_order="left")
    lost = joined["other"].null_count()
    if lost:
        notes.append(noted("peer-unknown", number=lost))
    joined = joined.drop_nulls("other").filter(pl.col("other") != pl.col("rank"))
    return joined.with_columns(
        pl.when("send").then("rank").otherwise("other").alias("src"),
        pl.when("send").then("other").otherwise("rank").alias("dst"),
    ).drop("other")


def _by_labels(
    sides: pl.DataFrame, ranks: pl.DataFrame, comms: dict[str, Communicator], notes: list[Note]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Sides whose range says which axis they serve, in the groups of the setup labels; and all others."""
    labels = setups(ranks)
    axis = pl.col("purpose").replace_strict(AXIS_OF, default=None, return_dtype=pl.String)
    sides = sides.with_columns(axis.alias("axis"))
    taken = []
    for name in sorted(sides["axis"].drop_nulls().unique().to_list()):
        for members in label_groups(labels, name):
            size = labels[members[0]].size(name)
            of_group = sides.filter((pl.col("axis") == name) & pl.col("rank").is_in(members))
            if of_group.height == 0:
                continue
            text = f"{name}:{ranks_text(members)}"
            paired = _pipeline_pairs(of_group, members, size) if name == "pp" else _collectives(of_group)
            if paired is None or not _agree(paired, members):
                notes.append(noted("unmatched-by-label", number=of_group.height, group=text))
                continue
            comms[text] = Communicator(text, text, members, size, dict(enumerate(members)), "labels", name)
            taken.append(paired.with_columns(pl.lit(text).alias("communicator"), pl.lit("labels").alias("known_by")))
    labelled = pl.concat(taken) if taken else sides.clear()
    # What labels spoke of but could not match is not tried again by order.
    rest = sides.filter(pl.col("axis").is_null() | (not labels))
    return labelled.drop("axis"), rest.drop("axis")


def _collectives(sides: pl.DataFrame) -> pl.DataFrame:
    """Ordinals per rank in order of launch; a SendRecv kernel of an expert group is an all-to-all."""
    return sides.unique(["rank", "op"], keep="first", maintain_order=True).with_columns(
        pl.int_range(pl.len()).over("rank").cast(pl.Int64).alias("seq"),
        pl.lit(None, pl.Boolean).alias("send"),
        pl.when(pl.col("kind") == SEND_RECV).then(pl.lit(ALL_TO_ALL)).otherwise("kind").alias("kind"),
    )


def _pipeline_pairs(sides: pl.DataFrame, members: tuple[int, ...], size: int) -> pl.DataFrame | None:
    """Transfers between two stages: without peers in the trace, only a pipeline of two says with whom."""
    if size != 2 or len(members) != 2:
        return None
    # Where calls were recorded they say the direction; a bare kernel is taken for one exchange each way.
    bare = sides.filter(pl.col("send").is_null())
    with_direction = sides.filter(pl.col("send").is_not_null())
    both = [bare.with_columns(pl.lit(way).alias("send")) for way in (True, False)] if bare.height else []
    ways = pl.concat([with_direction, *both]).sort("rank", "launched_ns", "op", maintain_order=True)
    other = {members[0]: 1, members[1]: 0}
    return ways.with_columns(
        pl.int_range(pl.len()).over("rank", "send").cast(pl.Int64).alias("seq"),
        pl.col("rank").replace_strict(other, return_dtype=pl.Int32).alias("peer"),
    )


def _agree(sides: pl.DataFrame, members: tuple[int, ...]) -> bool:
    """Whether all members have as many ops, of the same names in the same order; and what one sends the other gets.

    Only two members have transfers here. In which order a rank sends and receives within a batch is its own affair.
    """
    lists = sides.group_by("rank").agg(
        pl.col("kind"), pl.col("send").sum().alias("sent"), pl.col("send").not_().sum().alias("received")
    )
    if set(lists["rank"].to_list()) != set(members) or lists["kind"].n_unique() > 1:
        return False
    return lists["sent"].to_list() == lists["received"].to_list()[::-1]


def _by_order(
    sides: pl.DataFrame, ranks: pl.DataFrame, comms: dict[str, Communicator], notes: list[Note]
) -> pl.DataFrame:
    """By order on the stream, over all ranks: the k-th communication stream of one is that of the others."""
    everyone = tuple(sorted(ranks["rank"].to_list()))
    sides = sides.unique(["rank", "op"], keep="first", maintain_order=True)
    refused = sides.clear()
    if sides.height == 0 or len(everyone) < 2:
        return refused
    world = max(ranks["world_size"].drop_nulls().to_list(), default=0)
    if world > len(everyone):
        notes.append(noted("unmatched-partial-world", number=sides.height, here=len(everyone), world=world))
        return refused
    nth = pl.col("stream").rank("dense").over("rank").cast(pl.Int64) - 1
    sides = sides.sort("rank", "start_ns", maintain_order=True).with_columns(nth.alias("nth"))
    taken = []
    for (k,), of_stream in sorted(sides.group_by("nth"), key=lambda item: item[0]):
        numbered = of_stream.sort("rank", "start_ns", maintain_order=True).with_columns(
            pl.int_range(pl.len()).over("rank").cast(pl.Int64).alias("seq"),
            pl.lit(None, pl.Boolean).alias("send"),
        )
        if not _agree(numbered, everyone) or not _overlap(numbered, ranks):
            notes.append(noted("unmatched-by-order", number=of_stream.height))
            continue
        text = f"order:{k}"
        size = len(everyone)
        comms[text] = Communicator(text, text, everyone, size, dict(enumerate(everyone)), "order")
        taken.append(numbered.with_columns(pl.lit(text).alias("communicator"), pl.lit("order").alias("known_by")))
    return pl.concat(taken).drop("nth") if taken else refused


def _overlap(sides: pl.DataFrame, ranks: pl.DataFrame) -> bool:
    """Whether what was paired ran at the same time, as far as ranks that share a clock can tell."""
    clock = ranks.select("rank", "source")
    met = (
        sides.join(clock, on="rank")
        .group_by("source", "seq")
        .agg(pl.col("start_ns").max().alias("last"), pl.col("end_ns").min().alias("end"))
    )
    apart = met.filter(pl.col("last") > pl.col("end")).height
    return 10 * apart <= met.height


def _shifted(sides: pl.DataFrame, notes: list[Note]) -> pl.DataFrame:
    """Ordinals that mean the same on all ranks of a communicator, also where a rank began late or died early.

    A rank with fewer ops has them at the beginning, at the end, or somewhere between. The right place makes operation
    and bytes agree and, of those that do, its ends differ from the others' by the most constant time: ranks leave a
    collective together, whatever their clocks say.
    """
    counts = sides.group_by("communicator", "rank").len()
    uneven = counts.group_by("communicator").agg(pl.col("len").n_unique().alias("n")).filter(pl.col("n") > 1)
    if uneven.height == 0:
        return sides
    moved: list[pl.DataFrame] = []
    for text in sorted(uneven["communicator"].to_list()):
        of_communicator = sides.filter(pl.col("communicator") == text).sort("rank", "seq")
        of = {int(r): f for (r,), f in of_communicator.group_by("rank")}
        reference = max(sorted(of), key=lambda r: of[r].height)
        short = [r for r in sorted(of) if of[r].height < of[reference].height]
        for rank in short:
            shift = _best_shift(of[reference], of[rank])
            if shift:
                moved.append(of[rank].select("side", pl.lit(shift).cast(pl.Int64).alias("shift")))
        notes.append(noted("collectives-fewer", group=text, some=some_ranks(short)))
    if not moved:
        return sides
    joined = sides.join(pl.concat(moved), on="side", how="left", maintain_order="left")
    return joined.with_columns(pl.col("seq") + pl.col("shift").fill_null(0)).drop("shift")


def _best_shift(long: pl.DataFrame, short: pl.DataFrame) -> int:
    ends, short_ends = long["end_ns"].to_numpy(), short["end_ns"].to_numpy()
    key = pl.concat_str("kind", pl.col("bytes").cast(pl.String).fill_null(""), separator=" ")
    words, short_words = (f.select(key.alias("k"))["k"].to_numpy() for f in (long, short))
    n, extra = len(short_ends), len(ends) - len(short_ends)
    places = range(extra + 1) if extra <= 256 else [*range(128), *range(extra - 128, extra + 1)]

    def badness(shift: int) -> tuple[int, float, int]:
        apart = ends[shift : shift + n] - short_ends
        differ = int((words[shift : shift + n] != short_words).sum())
        return differ, float(np.ptp(np.percentile(apart, [10, 90]))), shift

    return min(map(badness, places))[2]


def _meetings(sides: pl.DataFrame, comms: dict[str, Communicator], notes: list[Note]) -> Matched:
    """Group sides by what they are a side of."""
    key = ["communicator", "src", "dst", "seq"]
    sides = sides.with_columns(pl.col("kind").n_unique().over(key).alias("names"))
    odd = sides.filter(pl.col("names") > 1)
    if odd.height:
        what = ", ".join(sorted(comms[c].label for c in odd["communicator"].unique().to_list())[:3])
        notes.append(noted("unmatched-operation", number=odd.height, what=what))
        sides = sides.filter(pl.col("names") == 1)
    sides = sides.sort(*key, "rank", maintain_order=True).drop("names")
    sides = sides.with_columns((pl.struct(key).rle_id()).cast(pl.Int64).alias("meeting"))
    meetings = sides.group_by("meeting", maintain_order=True).agg(
        *(pl.col(k).first() for k in key),
        pl.col("kind").first(),
        pl.col("rank").n_unique().cast(pl.Int64).alias("present"),
        pl.col("bytes").max(),
        pl.col("parted").first(),
        pl.col("known_by").first(),
        pl.col("purpose").drop_nulls().first(),
    )
    size = {c: comm.size for c, comm in comms.items()}
    meetings = meetings.with_columns(
        pl.when(pl.col("src") >= 0)
        .then(2)
        .otherwise(pl.col("communicator").replace_strict(size, default=None, return_dtype=pl.Int64))
        .alias("size")
    )
    meetings = meetings.with_columns(
        pl.when("parted").then(pl.col("bytes") * pl.col("size")).otherwise("bytes").alias("bytes")
    ).drop("parted")
    return Matched(meetings, sides, comms, notes)
