"""Which rank makes the others wait, and why?

`late_ns` is blame: at every communication the last to arrive is blamed for the time after the last but one; where it
was itself held up by an earlier communication, the blame passes on to whoever was late there, and so on to the root.
What a schedule makes ranks wait (a pipeline's next stage) is blame too, but nobody's fault: a rank has a `cause` only
where others waited for it and it took longer than ranks that do the same work: compute, host (it launched late), data
(late in getting input) or network (its links, not its arrival, are slow). Victims have none.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import polars as pl

from stepscope.analyses.stragglers.blame import Blame, blame, late_hosts
from stepscope.analyses.stragglers.facts import comparable, facts
from stepscope.analyses.stragglers.host import host_excess
from stepscope.derive.comm.across import Across, Align, across
from stepscope.derive.peers.compute import Compared, compare, longer, recorded_whole, same_work
from stepscope.derive.peers.links import SlowLinks, lone_links, slow_links
from stepscope.model.note import noted
from stepscope.model.profile import Profile
from stepscope.model.ranks import ranks_text, some_ranks
from stepscope.model.result import Result, rows
from stepscope.model.statement import STATEMENT, several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

ACROSS = True


class Row(TypedDict):
    rank: Annotated[int, "rank of the process"]
    late_ns: Annotated[int, "time that others waited for it, after passing on what it was not the root of"]
    times_last: Annotated[int, "communications at which it arrived last"]
    share_pct: Annotated[float, "its share of the lateness of all ranks"]
    cause: Annotated[
        str | None, "compute, host, data or network: where it takes longer than its peers; null for everyone else"
    ]
    excess_ns: Annotated[int, "how much longer it took than its peers, in the whole capture"]
    compute_more_ns: Annotated[int, "of that, compute"]
    host_late_ns: Annotated[int, "of that, without work because its host was late"]
    data_late_ns: Annotated[int, "of the host's, getting input"]
    network_more_ns: Annotated[
        int, "time of its transfers beyond that of similar groups, in the slowest group that it is in"
    ]
    raw_ns: Annotated[int, "blame before passing it on"]
    host: Annotated[str, "host of the rank"]
    pid: Annotated[int | None, "process id on its host"]


_ELSEWHERE = Threshold(
    10.0,
    "% of what its host is late by",
    "an excess of input alone is input; a host that is slow everywhere is slow in getting input, too",
    ("tests/analyses/test_stragglers.py",),
)
_WAITED = Threshold(
    0.5,
    "% of the capture",
    "where others waited for less, the rank needs no cause",
    ("tests/analyses/test_stragglers.py",),
)
_WAITED_BY_SOME = Threshold(
    2.0,
    "% of the capture",
    "the same where ranks are not in the profile: all that are may have waited for one of those. The hosts of three "
    "ranks differ by 1.0 while they wait for the fourth",
    ("h200/hf/hf4_straggler.rank*.pt.trace.json.gz", "tests/analyses/test_stragglers.py"),
)
_MOST = Threshold(
    50.0,
    "% of the lateness",
    "of ranks alike each comes last in turn; one with most of it is worth a word, also where nothing explains it",
    ("tests/analyses/test_stragglers.py",),
)


def stragglers(profile: Profile, *, align: Align = "auto") -> Result:
    a = across(profile, align, facts)
    who = blame(a)
    totals, kernels, stretch = comparable(profile, a)
    totals = totals.sort("rank")
    span = max(totals["span_ns"].to_list())
    groups = same_work(a.ranks, a)
    whole = recorded_whole(dict(totals.select("rank", "communications").iter_rows()), groups)
    compared = compare(kernels, groups, whole)
    hosts = host_excess(totals, groups, whole, span)
    links = slow_links(a, span)
    absent = any(n.code == "ranks-missing" for n in a.notes)
    least = (_WAITED_BY_SOME if absent else _WAITED).share * span
    table = _table(a, who, longer(compared, span), hosts, links, least)
    notes = list(a.notes)
    named = [r for r in table if r["cause"]]
    worst = max(table, key=lambda r: r["late_ns"])
    if absent and worst["cause"] is None:
        notes.append(noted("late-or-missing"))
    elif worst["cause"] is None and worst["share_pct"] > _MOST.value:
        notes.append(noted("late-without-cause", rank=worst["rank"], share=worst["share_pct"]))
    elif not named:
        notes.append(noted("no-straggler"))
    if stretch:
        notes.append(noted("compared-where-all-recorded", duration=about(stretch)))
    if short := sorted(set(groups) - whole):
        notes.append(noted("ranks-recorded-less", some=some_ranks(short)))
    if (unsure := lone_links(a)) is not None:
        notes.append(unsure)
    if lone := sum(c.alone for c in compared.values()):
        notes.append(noted("no-peer", number=lone, have="ranks have" if lone > 1 else "rank has"))
    summary: dict[str, Any] = {
        "stragglers": [{k: r[k] for k in ("rank", "cause", "excess_ns", "late_ns")} for r in named],
        "slow_links": _link_rows(a, links),
        "late_ns": int(who.late.sum()),
        "residual_p95_ns": round(a.clocks.residual),
        STATEMENT: _statement(table, named, len(a.ranks), absent),
    }
    return Result(rows(Row, table), summary=summary, notes=notes, ranked_by="")


#: What a sentence says of a cause.
_CAUSES = {
    "compute": "it computes longer",
    "host": "its host starves it",
    "data": "it is late in getting input",
    "network": "its links are slow",
}


def _statement(table: list[Row], named: list[Row], ranks: int, absent: bool) -> str:
    """Who makes the others wait, and why; or that nobody does."""
    late, last = sum(r["late_ns"] for r in table), sum(r["times_last"] for r in table)
    if not late and not named:
        return f"No rank makes another wait: {several(ranks, 'rank')}, on time at every communication."
    if absent and not named:
        return (
            f"None of these {ranks} ranks takes longer than ranks that do the same work; not all ranks of the job are "
            "in the profile, and the one that is waited for may be missing."
        )
    chief = named[0] if named else max(table, key=lambda r: r["late_ns"])
    if not named and chief["share_pct"] <= _MOST.value:
        spread = f"the {about(late)} of waiting come from the schedule, or are evenly spread"
        return f"No rank takes longer than ranks that do the same work; {spread}."
    times = f"is last in {chief['times_last']:,} of {several(last, 'collective')} and "
    waits = f"makes the others wait {about(chief['late_ns'])}" if chief["late_ns"] else "takes longer than its peers"
    why = _CAUSES[chief["cause"]] if chief["cause"] else "nothing recorded says why"
    more = f" ({about(chief['excess_ns'])} more than its peers)" if named and chief["excess_ns"] else ""
    others = [r["rank"] for r in named[1:]]
    beside = f"; {some_ranks(others)} {'has' if len(others) == 1 else 'have'} a cause too" if others else ""
    return f"Rank {chief['rank']} {times * bool(chief['times_last'])}{waits}; {why}{more}{beside}."


def _link_rows(a: Across, links: SlowLinks | None) -> list[dict[str, str | int | float]]:
    """Slow links as the summary has them, worst first."""
    label = {c: comm.label for c, comm in a.matched.communicators.items()}
    return [
        {
            "group": label.get(link["link"], link["link"]),
            "op": link["kind"],
            "ranks": ranks_text(link["ranks"]),
            "slower": link["slower"],
            "excess_ns": link["over_ns"],
        }
        for link in (links.links.iter_rows(named=True) if links else ())
    ]


def _table(
    a: Across, who: Blame, slow: dict[int, Compared], late: pl.DataFrame, links: SlowLinks | None, least: float
) -> list[Row]:
    total = int(who.late.sum())
    place = {int(r): i for i, r in enumerate(who.ranks.tolist())}
    hosts = dict(a.ranks.select("rank", "host").iter_rows())
    pids = dict(a.ranks.select("rank", "pid").iter_rows())
    network = _network(links)
    shared = _shared_by_host(a, late)
    together = late_hosts(a)
    table: list[Row] = []
    for row in late.iter_rows(named=True):
        rank, i = row["rank"], place.get(row["rank"])
        row["compute_ns"] = slow[rank].excess_ns if rank in slow else 0
        waited = int(who.late[i]) if i is not None else 0
        excess = row["compute_ns"] + max(row["host_ns"], row["data_ns"])
        if min(excess, max(waited, together.get(hosts[rank], 0))) < least:  # nobody waited for it
            row, excess = {**row, "compute_ns": 0, "host_ns": 0, "data_ns": 0}, 0
        table.append(
            {
                "rank": rank,
                "late_ns": waited,
                "times_last": int(who.times[i]) if i is not None else 0,
                "share_pct": 100.0 * waited / total if total else 0.0,
                "cause": _cause(row, network.get(rank, 0), rank in shared),
                "excess_ns": excess or network.get(rank, 0),
                "compute_more_ns": row["compute_ns"],
                "host_late_ns": row["host_ns"],
                "data_late_ns": row["data_ns"],
                "network_more_ns": network.get(rank, 0),
                "raw_ns": int(who.raw[i]) if i is not None else 0,
                "host": hosts[rank],
                "pid": pids[rank],
            }
        )
    return sorted(table, key=lambda r: (r["cause"] is None, -r["excess_ns"], -r["late_ns"], r["rank"]))


def _cause(row: dict[str, Any], network: int, shared: bool) -> str | None:
    """The greatest excess; input only where that is all there is, and not the whole host's."""
    late = max(row["host_ns"], row["data_ns"])
    if max(row["compute_ns"], late) == 0:
        return "network" if network else None
    if row["compute_ns"] >= late:
        return "compute"
    only_data = row["data_ns"] > 0 and row["elsewhere_ns"] <= _ELSEWHERE.share * row["data_ns"]
    return "data" if only_data and not (shared and not row["named"]) else "host"


def _shared_by_host(a: Across, late: pl.DataFrame) -> set[int]:
    """Ranks that are late together with all others of their host, which has several."""
    beside = late.join(a.ranks.select("rank", "host"), on="rank").with_columns(
        (pl.col("host_ns") > 0).all().over("host").alias("all"), pl.len().over("host").alias("n")
    )
    chosen = beside.filter(pl.col("all") & (pl.col("n") > 1))
    return set(chosen["rank"].to_list())


def _network(links: SlowLinks | None) -> dict[int, int]:
    """By rank at fault, the excess of the worst slow link it is in."""
    worst: dict[int, int] = {}
    for ranks, over in links.links.select("ranks", "over_ns").iter_rows() if links else ():
        for rank in set(ranks) & set(links.ranks if links else ()):
            worst[rank] = max(worst.get(rank, 0), over)
    return worst
