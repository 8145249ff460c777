"""Transfers over some links take much longer than over similar ones.

Which links are slow, and who is at fault, is one rule for `stragglers` and for this finding: links are similar where
operation, bytes, number of ranks and of hosts agree. What the slow ones could save is the step replayed with their
transfers as long as usual. Where every link of a kind is slow, nothing tells: bandwidth by `collectives --by size` then
has to be held against the data sheet.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.comm.kinds import bus_factors
from stepscope.derive.peers.links import SlowLinks, slow_links, transfers
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.machines import on_amd
from stepscope.findings.evidence.meetings import in_step, met, sides
from stepscope.findings.evidence.places import places_of
from stepscope.findings.evidence.shown import matched
from stepscope.findings.finding import Finding, Place
from stepscope.findings.texts import advice, title
from stepscope.model.ranks import ranks_text, some_ranks
from stepscope.model.statement import several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

SAME_BANDWIDTH = Threshold(
    1.25,
    "times the bandwidth",
    "rings that a slow link limits run within 1.1 of its bandwidth on simulated jobs; a real operation adds some more",
    ("tests/findings/test_faults_across.py::test_slow_link",),
)


ID = "slow-link"

#: Links that a finding names one by one.
_LISTED = 6


def slow(case: Case) -> SlowLinks | None:
    """The slow links of the step."""
    if len(case.ranks) < 2:
        return None
    return slow_links(met(case), case.step_ns, case.once(in_step))


def slowed(case: Case) -> pl.DataFrame:
    """Transfers of the step that a slow link makes longer, as `SlowLinks.meetings` has them."""
    links = case.once(slow)
    if links is None:
        return pl.DataFrame()
    return pl.concat([links.meetings, _limited(case, links)], how="diagonal_relaxed")


def _limited(case: Case, links: SlowLinks) -> pl.DataFrame:
    """Transfers of groups that hold both ends of the slow link, and have none similar to be compared with.

    A ring is as fast as its slowest link: where such a group moves bytes at the bandwidth of the slow link, that is
    what limits it, and it would be faster by as much.
    """
    if len(links.ranks) != 2:
        return links.meetings.clear()
    a = met(case)
    both = np.bincount(a.meeting, np.isin(a.rank, links.ranks), minlength=a.meetings.height) == 2
    slowest = links.meetings.with_columns(_bandwidth("each_ns").alias("bus")).sort("bytes").tail(1)
    rate, ratio = float(slowest["bus"][0]), float(slowest["usual_ns"][0] / slowest["each_ns"][0])
    wide = (
        transfers(a, case.once(in_step))
        .filter(~pl.col("link").is_in(links.links["link"].to_list()))
        .filter(pl.col("meeting").is_in(np.flatnonzero(both)))
        .filter(_bandwidth("took_ns").is_between(rate / SAME_BANDWIDTH.value, rate * SAME_BANDWIDTH.value))
    )
    return wide.with_columns(
        pl.col("took_ns").alias("each_ns"),
        (pl.col("took_ns") * ratio).cast(pl.Int64).alias("usual_ns"),
        (pl.col("took_ns") * (1 - ratio)).cast(pl.Int64).alias("over_ns"),
    )


def _bandwidth(ns: str) -> pl.Expr:
    """Bus bandwidth, by which operations compare."""
    return pl.col("bytes") * bus_factors(pl.col("kind"), pl.col("size")) / pl.col(ns)


def remedy(case: Case) -> Change:
    """The step with transfers over slow links as long as usual."""
    table = case.once(slowed)
    return Change(transfer_less_ns=dict(table.select("meeting", "over_ns").iter_rows()) if table.height else {})


def detect(case: Case) -> list[Finding]:
    links, table = case.once(slow), case.once(slowed)
    if links is None:
        return []
    slower = float((table["each_ns"] / table["usual_ns"]).median())  # type: ignore[arg-type]
    worst = table.sort("over_ns", "meeting", descending=[True, False]).row(0, named=True)
    who = f"host {links.host}" if links.host else some_ranks(links.ranks)
    rate = worst["bytes"] / max(worst["each_ns"], 1)
    usual = worst["bytes"] / max(worst["usual_ns"], 1)
    group, took = _group(case, int(worst["meeting"]))
    return [
        Finding(
            ID,
            title("slow-link", more="of" if links.host else "between", who=who, slower=slower),
            case.credit(ID, at_most=int(table["over_ns"].sum())),
            "likely",
            f"{several(table.height, 'transfer')} per step, {about(float(table['over_ns'].sum()))} "
            f"longer in total than usual, over the links of ranks {_listed(links)}: a {worst['kind']} of "
            f"{worst['bytes'] / 1e6:.1f} MB runs at {rate:.0f} GB/s there, at {usual:.0f} GB/s over similar links; "
            f"such transfers of group {group} take {about(took)} of the step",
            advice(
                "slow-link",
                more="xGMI (`amd-smi xgmi`)" if on_amd(case, case.ranks) else "NVLink state (`nvidia-smi nvlink -s`)",
            ),
            ("collectives", "--by group"),
            figures=(took,),
            ranks=links.ranks,
            where=_where(case, table, links.ranks),
            stands_out=True,
        )
    ]


def _group(case: Case, meeting: int) -> tuple[str, int]:
    """The group of a transfer, and what all its transfers of this kind take, as `collectives` has it."""
    a = met(case)
    one = a.meetings.filter(pl.col("meeting") == meeting).row(0, named=True)
    label = a.matched.communicators[one["communicator"]].label
    table = matched(case, "group").rows.filter((pl.col("group") == label) & (pl.col("op") == one["kind"]))
    return label, int(table["transfer_ns"].max() or 0)  # type: ignore[arg-type]


def _listed(links: SlowLinks) -> str:
    """Ranks of the slow links, worst first."""
    texts = list(dict.fromkeys(ranks_text(ranks) for ranks in links.links["ranks"].to_list()))
    more = f" and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return " / ".join(texts[:_LISTED]) + more


def _where(case: Case, table: pl.DataFrame, ranks: tuple[int, ...], most: int = 10) -> tuple[Place, ...]:
    """The slowest transfers, on one of the ranks in question; beside the first, its other end."""
    ops = case.once(sides).join(table.select("meeting", "over_ns"), on="meeting").filter(pl.col("rank").is_in(ranks))
    ops = ops.sort("over_ns", "meeting", "rank", descending=[True, False, False])
    first = ops.unique("meeting", keep="first", maintain_order=True)
    other_end = ops.filter(pl.col("meeting") == first["meeting"][0])[1:2] if first.height else ops.clear()
    chosen = pl.concat([first[:1], other_end, first[1:]]).select("rank", "op").head(most)
    return places_of(case, [(int(r), int(o)) for r, o in chosen.iter_rows()])
