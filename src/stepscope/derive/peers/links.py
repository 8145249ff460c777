"""Slow links: groups and pairs of ranks whose transfers take much longer than those of similar links.

Links are similar where operation, bytes, number of ranks and of hosts agree. A link is judged by the median of its
transfers, beside the lower quartile of the medians of similar links: half of the links may be slow, and none is faster
than it should be. It is slow where it takes `SLOW_LINK` times as long, and that is not chance: three quarters of its
transfers take longer than three quarters of those of the usual link. Where every link of a kind is slow, nothing tells.

The rule applies to any stretch of time: `stragglers` asks it of the capture, `diagnose` of the step.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.comm.across import Across
from stepscope.derive.comm.kinds import SEND_RECV
from stepscope.derive.peers.compute import WORTH_A_NAME
from stepscope.intervals.arrays import Mask
from stepscope.model.note import Note, noted
from stepscope.model.threshold import Threshold

SLOW_LINK = Threshold(
    1.4,
    "times the usual transfer",
    "healthy links differ by up to 1.23 beyond chance; a link with two thirds of its bandwidth comes to 1.45",
    ("tests/derive/peers/test_links.py", "tests/data/moe_reference", "decision 0018"),
)
FEWEST_TRANSFERS = Threshold(
    4,
    "transfers",
    "the median of fewer says nothing of what is usual on a link",
    ("tests/derive/peers/test_links.py", "decision 0018"),
)


#: What makes links similar.
SIMILAR = ["kind", "bytes", "size", "hosts"]


class SlowLinks(Struct, frozen=True):
    """Slow links, their transfers, and who is at fault as far as the trace can tell."""

    #: per link and operation: link, kind, ranks, slower (times as long), over_ns (in all), meeting (the first)
    links: pl.DataFrame
    #: meetings over them: meeting, kind, bytes, size, link, took_ns, each_ns, usual_ns, over_ns
    meetings: pl.DataFrame
    ranks: tuple[int, ...]
    host: str | None


def transfers(a: Across, inside: Mask | None = None) -> pl.DataFrame:
    """Whole transfers (of sides `inside`, where given): meeting, kind, bytes, size, hosts, clocks, link, took_ns."""
    source = a.matched.sides["source"].cast(pl.Int64).to_numpy()
    hosts = a.ranks.select(pl.col("rank").cast(pl.Int64), host=machines(a.ranks))
    reach = pl.DataFrame({"meeting": a.meeting, "rank": a.rank, "clock": a.clocks.same[source]})
    reach = reach.join(hosts, on="rank").group_by("meeting").agg(pl.col("host", "clock").n_unique().name.suffix("s"))
    pair = pl.concat_str(pl.min_horizontal("src", "dst"), pl.max_horizontal("src", "dst"), separator="-")
    table = a.meetings.with_columns(
        pl.Series("took_ns", a.transfer),
        pl.when(pl.col("kind") == SEND_RECV).then(pair).otherwise("communicator").alias("link"),
    )
    if inside is not None:
        table = table.filter(pl.col("meeting").is_in(np.unique(a.meeting[inside])))
    whole = (pl.col("present") == pl.col("size")) & (pl.col("size") > 1) & (pl.col("bytes") > 0)
    table = table.filter(whole & (pl.col("took_ns") > 0)).join(reach, on="meeting", maintain_order="left")
    return table.select("meeting", *SIMILAR, "clocks", "link", "took_ns")


def machines(ranks: pl.DataFrame) -> pl.Series:
    """The machine of each rank: its host; where none has two ranks, a rank whose devices count anew begins the next.

    torch.profiler names no hosts, and each file counts as one. What crosses machines is slow beside what does not.
    """
    if ranks["host"].is_duplicated().any():
        return ranks["host"]
    by_rank = ranks.select("rank", "device").sort("rank")
    anew = (pl.col("device") <= pl.col("device").shift(1)).fill_null(False)
    number = by_rank.select("rank", anew.cum_sum().cast(pl.String).alias("machine"))
    return ranks.select("rank").join(number, on="rank", how="left", maintain_order="left")["machine"].alias("host")


def slow_links(a: Across, stretch_ns: float, inside: Mask | None = None) -> SlowLinks | None:
    """The slow links of a stretch, where they cost a share of it that is worth a name."""
    table = transfers(a, inside)
    slow = _beyond(table, a.clocks.residual)
    over = table.join(slow, on=[*SIMILAR, "link"], maintain_order="left").with_columns(
        (pl.col("took_ns") * (1 - pl.col("usual_ns") / pl.col("each_ns"))).cast(pl.Int64).alias("over_ns")
    )
    if over.height == 0 or over["over_ns"].sum() < WORTH_A_NAME.share * stretch_ns:
        return None
    members = pl.DataFrame({"meeting": a.meeting, "rank": a.rank}).group_by("meeting").agg(pl.col("rank").sort())
    links = (
        over.with_columns((pl.col("each_ns") / pl.col("usual_ns")).alias("slower"))
        .group_by("link", "kind", maintain_order=True)
        .agg(pl.col("slower").max(), pl.col("over_ns").sum(), pl.col("meeting").first())
        .join(members, on="meeting", maintain_order="left")
        .rename({"rank": "ranks"})
        .sort("over_ns", "link", "kind", descending=[True, False, False])
    )
    ranks, host = _at_fault(a, links)
    return SlowLinks(links, over, ranks, host)


def _beyond(table: pl.DataFrame, residual: float) -> pl.DataFrame:
    """By link and what it is similar by: `each_ns`, what a transfer takes there, and `usual_ns`; of slow ones alone."""
    took = pl.col("took_ns")
    links = (
        table.group_by([*SIMILAR, "link"], maintain_order=True)
        .agg(
            took.median().alias("each_ns"),
            took.quantile(0.25, "lower").alias("low_ns"),
            took.quantile(0.75, "higher").alias("high_ns"),
            pl.col("clocks").max(),
            pl.len().alias("n"),
        )
        .filter(pl.col("n") >= FEWEST_TRANSFERS.value)
    )
    usual = (
        links.sort("each_ns", "link")
        .group_by(SIMILAR, maintain_order=True)
        .agg(
            pl.col("each_ns").get((pl.len() - 1) // 4).alias("usual_ns"),
            pl.col("high_ns").get((pl.len() - 1) // 4).alias("usual_high_ns"),
            pl.len().alias("links"),
        )
    )
    apart = pl.col("each_ns") - pl.col("usual_ns")
    return (
        links.join(usual.filter(pl.col("links") > 1), on=SIMILAR, maintain_order="left")
        .filter(pl.col("each_ns") >= SLOW_LINK.value * pl.col("usual_ns"))
        .filter(pl.col("low_ns") > pl.col("usual_high_ns"))
        # What two clocks do not resolve says nothing.
        .filter((pl.col("clocks") == 1) | (apart > residual))
        .select(*SIMILAR, "link", "each_ns", "usual_ns")
    )


def _at_fault(a: Across, links: pl.DataFrame) -> tuple[tuple[int, ...], str | None]:
    """The host that is in all slow links, where all of them join hosts; else the ranks in most of the slow links."""
    host_of = {int(rank): str(host) for rank, host in a.ranks.select("rank", "host").iter_rows()}
    by_link: dict[str, set[int]] = {}
    for link, ranks in links.select("link", "ranks").iter_rows():
        by_link.setdefault(link, set()).update(ranks)
    hosts = [{host_of[r] for r in ranks} for ranks in by_link.values()]
    shared = set.intersection(*hosts)
    if len(shared) == 1 and len(hosts) > 1 and min(map(len, hosts)) > 1:
        host = shared.pop()
        return tuple(sorted(r for r, name in host_of.items() if name == host)), host
    counts = Counter(rank for ranks in by_link.values() for rank in ranks)
    most = max(counts.values())
    return tuple(sorted(rank for rank, n in counts.items() if n == most)), None


def lone_links(a: Across) -> Note | None:
    """A note where most time of transfers between hosts is in groups that have none similar to be compared with."""
    if not a.ranks["host"].is_duplicated().any():  # torch.profiler names no hosts: each file counts as one
        return None
    links = transfers(a).group_by([*SIMILAR, "link"], maintain_order=True).agg(pl.col("took_ns").sum())
    between = links.filter(pl.col("hosts") > 1).with_columns((pl.len().over(SIMILAR) == 1).alias("alone"))
    lone = between.filter("alone")
    if lone.height == 0 or 2 * lone["took_ns"].sum() < between["took_ns"].sum():
        return None
    n = lone["link"].n_unique()
    who = f"{n} groups between hosts have" if n > 1 else "one group between hosts has"
    return noted("no-like-link", who=who)
