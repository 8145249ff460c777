"""Transfers over some links take much longer than over others like them.

Links are alike where operation, bytes, number of ranks and of hosts agree; what is usual is the lower quartile of such
links. What the slow ones could give back is the step replayed with their transfers as long as usual. Where every link
of a kind is slow, nothing tells: bandwidth by `collectives --by size` then has to be held against the data sheet.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import polars as pl

from stepscope.derive.comm.communicators import ranks_text
from stepscope.derive.comm.kinds import SEND_RECV, bus_factors
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.meetings import met, sides
from stepscope.findings.evidence.places import places_of
from stepscope.findings.finding import Finding, Place
from stepscope.findings.words import ms

ID = "slow-link"

#: How many times as long as usual a slow link's transfers take.
_SLOW = 1.4
#: A transfer that clocks do not resolve says nothing.
_RESIDUALS = 4.0
#: Bandwidths within this factor are the same.
_NEAR = 1.25
#: What makes links alike.
_LIKE = ["kind", "bytes", "size", "hosts"]


@dataclass(frozen=True)
class _Slow:
    """Meetings over slow links, with how much too long each took, and who is at fault as far as the trace can tell."""

    table: pl.DataFrame
    ranks: tuple[int, ...]
    host: str | None


def slow(case: Case) -> _Slow | None:
    """The slow links of the step."""
    if len(case.ranks) < 2:
        return None
    a = met(case)
    pair = pl.concat_str(pl.min_horizontal("src", "dst"), pl.max_horizontal("src", "dst"), separator="-")
    table = (
        case.once(sides)
        .filter((pl.col("present") == pl.col("size")) & (pl.col("bytes") > 0) & (pl.col("size") > 1))
        .filter(pl.col("took_ns") > 0)
        .filter((pl.col("clocks") == 1) | (pl.col("took_ns") > _RESIDUALS * a.clocks.residual))
        .with_columns(pl.when(pl.col("kind") == SEND_RECV).then(pair).otherwise("communicator").alias("link"))
    )
    meetings = table.unique("meeting", maintain_order=True)
    links = meetings.group_by([*_LIKE, "link"], maintain_order=True).agg(
        pl.col("took_ns").quantile(0.25, "lower").alias("each_ns")
    )
    usual = links.group_by(_LIKE).agg(
        pl.col("each_ns").quantile(0.25, "lower").alias("usual_ns"), pl.len().alias("links")
    )
    found = links.join(usual.filter(pl.col("links") > 1), on=_LIKE).filter(
        pl.col("each_ns") >= _SLOW * pl.col("usual_ns")
    )
    over = meetings.join(found, on=[*_LIKE, "link"], maintain_order="left").with_columns(
        (pl.col("took_ns") * (1 - pl.col("usual_ns") / pl.col("each_ns"))).cast(pl.Int64).alias("over_ns")
    )
    if over.height == 0:
        return None
    ranks, host = _guilty(case, over, table)
    return _Slow(pl.concat([over, _limited(over, table, ranks)], how="diagonal_relaxed"), ranks, host)


def _limited(over: pl.DataFrame, table: pl.DataFrame, ranks: tuple[int, ...]) -> pl.DataFrame:
    """Transfers of groups that hold both ends of the slow link, and have no like to be compared with.

    A ring is as fast as its slowest link: where such a group moves bytes at the bandwidth of the slow link, that is
    what limits it, and it would be faster by as much.
    """
    if len(ranks) != 2:
        return over.clear()
    slow = over.with_columns(_bandwidth("each_ns").alias("bus")).sort("bytes").tail(1)
    known = set(over["link"].to_list())
    wide = (
        table.filter(~pl.col("link").is_in(list(known)))
        .filter(pl.col("rank").is_in(ranks).sum().over("meeting") == 2)
        .unique("meeting", maintain_order=True)
        .with_columns(_bandwidth("took_ns").alias("bus"), pl.lit(slow["each_ns"][0]).alias("each"))
    )
    rate, ratio = float(slow["bus"][0]), float(slow["usual_ns"][0] / slow["each_ns"][0])
    wide = wide.filter(pl.col("bus").is_between(rate / _NEAR, rate * _NEAR))
    return wide.with_columns(
        pl.col("took_ns").alias("each_ns"),
        (pl.col("took_ns") * ratio).cast(pl.Int64).alias("usual_ns"),
        (pl.col("took_ns") * (1 - ratio)).cast(pl.Int64).alias("over_ns"),
    ).drop("bus", "each")


def _bandwidth(ns: str) -> pl.Expr:
    """Bus bandwidth, by which operations compare."""
    return pl.col("bytes") * bus_factors(pl.col("kind"), pl.col("size")) / pl.col(ns)


def _guilty(case: Case, over: pl.DataFrame, table: pl.DataFrame) -> tuple[tuple[int, ...], str | None]:
    """The host that is in all slow links that join hosts; else the ranks in most of the slow links."""
    mine = table.filter(pl.col("meeting").is_in(over["meeting"].implode()))
    by_link = mine.group_by("link").agg(pl.col("rank").unique(), pl.col("host").unique())
    hosts = Counter(h for row in by_link["host"].to_list() for h in row)
    ranks = Counter(r for row in by_link["rank"].to_list() for r in row)
    top = [h for h, n in hosts.items() if n == by_link.height]
    joined = min(len(row) for row in by_link["host"].to_list()) > 1
    if len(top) == 1 and by_link.height > 1 and joined:
        of = dict(case.profile.ranks.select("rank", "host").iter_rows())
        return tuple(r for r in case.ranks if of[r] == top[0]), top[0]
    most = max(ranks.values())
    return tuple(sorted(r for r, n in ranks.items() if n == most)), None


def remedy(case: Case) -> Change:
    """The step with transfers over slow links as long as usual."""
    found = case.once(slow)
    if found is None or not case.material(int(found.table["over_ns"].sum())):
        return Change()
    return Change(transfer_less_ns=dict(found.table.select("meeting", "over_ns").iter_rows()))


def detect(case: Case) -> list[Finding]:
    found = case.once(slow)
    if found is None or not case.remedy(ID).transfer_less_ns:
        return []
    table = found.table
    slower = float((table["each_ns"] / table["usual_ns"]).median())  # type: ignore[arg-type]
    worst = table.sort("over_ns", descending=True).row(0, named=True)
    who = f"host {found.host}" if found.host else f"ranks {ranks_text(found.ranks)}"
    rate = worst["bytes"] / max(worst["each_ns"], 1)
    usual = worst["bytes"] / max(worst["usual_ns"], 1)
    return [
        Finding(
            ID,
            f"transfers {'of' if found.host else 'between'} {who} take {slower:.1f} times as long as over like links",
            case.credit(ID, at_most=int(table["over_ns"].sum())),
            "high",
            f"{table.height // case.steps} transfers per step over {table['link'].n_unique()} links, "
            f"{ms(float(table['over_ns'].sum()) / case.steps)} longer in all than usual: a {worst['kind']} of "
            f"{worst['bytes'] / 1e6:.1f} MB runs at {rate:.0f} GB/s there, at {usual:.0f} GB/s over like links",
            "look at that link: NIC and cable (link width, errors, congestion), NVLink state (`nvidia-smi nvlink -s`), "
            "NCCL's choice of network interface (NCCL_DEBUG=INFO); or place ranks so that less goes over it",
            ("collectives", "--by size"),
            ranks=found.ranks,
            where=_where(case, table, found.ranks),
        )
    ]


def _where(case: Case, table: pl.DataFrame, ranks: tuple[int, ...], most: int = 10) -> tuple[Place, ...]:
    """The slowest transfers, on one of the ranks in question."""
    every = case.once(sides).join(table.select("meeting", "over_ns"), on="meeting").filter(pl.col("rank").is_in(ranks))
    every = every.sort("over_ns", "rank", descending=[True, False]).unique("meeting", keep="first", maintain_order=True)
    return places_of(case, [(int(r), int(o)) for r, o in every.select("rank", "op").head(most).iter_rows()])
