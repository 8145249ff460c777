"""A host (or one rank) comes late: its own program does something else for a while, and all others wait for it.

Looked at are long stretches in which a rank's host made no CUDA call, by the place where they come (how much
communication the rank had launched before), and beside the same place on the other ranks: what is usual there is the
lower quartile. Where all ranks of a host are late at a place, the host is; else the rank. Ranks may also begin the step
itself late. What it could save is the step replayed without the excess. Input (`data-stall`) and hosts that launch
slowly throughout (`launch-bound`) are other faults.
"""

from __future__ import annotations

from functools import reduce
from operator import and_

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.peers.input import data_ranges
from stepscope.derive.peers.lateness import host_late
from stepscope.derive.rank.data import COMM, RankData
from stepscope.derive.replay.change import Change
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.evidence.arrivals import begins_late, comes_last, late_without_cause
from stepscope.findings.evidence.hosts import NAMED_BESIDE_WORST, Host, each_host, hosts, sure
from stepscope.findings.evidence.launching import slow_hosts
from stepscope.findings.evidence.peers import stages
from stepscope.findings.evidence.shown import LATE, beside, lost_by, peer_of
from stepscope.findings.finding import Finding, Place
from stepscope.findings.texts import advice, title
from stepscope.intervals import Spans, covered, gaps, join, subtract, union
from stepscope.intervals.arrays import I64, Mask
from stepscope.model.ranks import some_ranks
from stepscope.model.statement import several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

LATE_STRETCH = Threshold(
    1.0,
    "% of the step",
    "half of what is shown: shorter stretches without a call are on every host",
    (
        "tests/findings/test_healthy.py",
        "tests/findings/test_faults_across.py::test_late_node",
        "tests/findings/test_real_faults_across.py",
    ),
)
LATE_RESIDUALS = Threshold(
    4.0,
    "times the residual of the clocks",
    "a beginning that clocks place no better says nothing; the residual is a median, its tail is longer",
    ("tests/findings/test_faults_across.py::test_a_wrong_clock_is_no_finding",),
)


ID = "late-node"


class _Late(Struct, frozen=True):
    """Ranks that are late together, by how much (of the window), and when."""

    ranks: tuple[int, ...]
    host: str | None
    ns: int
    change: Change
    where: tuple[Place, ...]
    at: str
    #: it was late when the capture began: nothing recorded says why, nor that other steps begin so
    from_before: bool = False


def late(case: Case) -> list[_Late]:
    """Who is late."""
    if len(case.ranks) < 2:
        return []
    slow = slow_hosts(case).beside
    table = pl.concat(each_host(case, lambda h: _stretches(case, h, slow.get(h.data.rank, 1.0))).values())
    begins = _begins(case)
    table = _beyond_usual(table, len(case.ranks)).filter(pl.col("over_there") > LATE_STRETCH.share * case.step_ns)
    over = dict(table.group_by("rank").agg(pl.col("over").sum()).iter_rows())
    for rank, ns in begins.items():
        over[rank] = over.get(rank, 0) + ns
    least = LATE_STRETCH.share * case.step_ns
    guilty = {r for r, ns in over.items() if ns >= least and ns >= NAMED_BESIDE_WORST.share * max(over.values())}
    host_of = dict(case.profile.ranks.select("rank", "host").iter_rows())
    groups = []
    by_host: dict[str, list[int]] = {}
    for r in case.ranks:
        by_host.setdefault(host_of[r], []).append(r)
    others: list[int] = []
    for host, members in by_host.items():
        late_here = [r for r in members if r in guilty]
        if len(late_here) == len(members) and len(members) > 1 and len(by_host) > 1:
            groups.append(_one(case, tuple(late_here), host, table.filter(pl.col("rank").is_in(late_here)), begins))
        else:
            others += late_here
    # Of single ranks, those that wait for input have another finding. Late ranks hide each other: they are one.
    rows = table.filter(pl.col("rank").is_in(others) & pl.col("follows_input").not_())
    alone = tuple(r for r in others if r in begins or r in set(rows["rank"].to_list()))
    if alone and 2 * len(alone) <= len(case.ranks):  # most of them: that is how it is, not lateness
        groups.append(_one(case, alone, None, rows, begins))
    return groups


def _beyond_usual(table: pl.DataFrame, ranks: int) -> pl.DataFrame:
    """`over_there`, by which a rank's stretches at a place exceed what is usual there, and of each stretch its `over`.

    A rank may have several at one place, as before every layer of a forward pass: together they are compared.
    """
    table = table.with_columns(pl.col("ns").sum().over("rank", "place").alias("there"))
    # A rank without a long stretch at a place has none there: such zeros count for the lower quartile.
    nth = (ranks - 1) // 4 - (ranks - pl.len().cast(pl.Int64))
    usual = pl.when(nth >= 0).then(pl.col("there").sort().get(pl.max_horizontal(nth, 0))).otherwise(0)
    by_place = table.unique(["rank", "place"]).group_by("place").agg(usual.alias("usual"))
    over = (pl.col("there") - pl.col("slower") * pl.col("usual")).clip(0)
    return table.join(by_place, on="place", maintain_order="left").with_columns(
        over.alias("over_there"), (pl.col("ns") * over / pl.col("there")).round().cast(pl.Int64).alias("over")
    )


def _one(case: Case, group: tuple[int, ...], host: str | None, rows: pl.DataFrame, begins: dict[int, int]) -> _Late:
    cut = {}
    for r in group:
        stretches = rows.filter(pl.col("rank") == r)
        if stretches.height:
            start = stretches["start"].to_numpy()
            cut[r] = union(start, start + stretches["over"].to_numpy())
    earlier = {r: begins[r] for r in group if r in begins}
    total = max(int(s.length()) for s in [*cut.values(), Spans.empty()])
    total = max(total, *(earlier.get(r, 0) + (cut[r].length() if r in cut else 0) for r in group))
    where = tuple(
        Place(r, s, e)
        for r, s, e in rows.sort("over", descending=True).select("rank", "start", "end").head(10).iter_rows()
    )
    once = rows.height == rows["rank"].n_unique()
    first = once and rows.height > 0 and bool((rows["place"] == 0).all())
    at = "at the start of the step" if first or not rows.height else "between launches"
    change = Change(host_time_cut=cut, host_start_earlier_ns=earlier)
    from_before = not cut and any(_recorded_from(hosts(case)[r]) for r in group)
    return _Late(group, host, total, change, where, at, from_before)


def _begins(case: Case) -> dict[int, int]:
    """How much later than others that do the same ranks begin the first step: later ones begin when the last ends."""
    if any(w.kind != "step" or w.index for w in case.windows.values()):
        return {}
    begun = {r: case.path.clock.moment(r, h.begin) for r, h in hosts(case).items()}
    stage = case.once(stages)
    like = {s: sorted(t for r, t in begun.items() if stage[r] == s) for s in set(stage.values())}
    usual = {r: like[stage[r]][(len(like[stage[r]]) - 1) // 4] for r in begun}
    residual = case.path.met.clocks.residual if case.path.met is not None else 0
    least = max(LATE_STRETCH.share * case.step_ns, LATE_RESIDUALS.value * residual)
    # Only time in which the host did nothing: it may as well have been held up by the step before.
    free = {r: begun[r] - usual[r] if _recorded_from(h) else _free_before(h) for r, h in hosts(case).items()}
    late = {r: min(t - usual[r], free[r]) for r, t in begun.items()}
    return {r: ns for r, ns in late.items() if ns >= least}


def _free_before(host: Host) -> int:
    """Time before the step began since the host's last call returned; none where it made no call before."""
    before = host.stop[host.start < host.begin]
    return max(host.begin - int(before.max()), 0) if len(before) else 0


def _recorded_from(host: Host) -> bool:
    """Whether its records begin with the step."""
    return not (host.start < host.begin).any()


def _stretches(case: Case, host: Host, slower: float) -> pl.DataFrame:
    """Long stretches of a rank's host without a call: place, start, end, ns, and whether a copy of input follows.

    On a host that is so many times slower than the others, those that are not long for that alone.
    """
    data = host.data
    least = int(slower * LATE_STRETCH.share * case.step_ns)
    busy = union(np.maximum(host.start, host.begin), np.maximum(host.stop, host.begin))
    free = gaps(busy.clip(host.begin, host.end), host.begin, host.end)
    long = (free.end - free.start) >= least
    free = subtract(Spans(free.start[long], free.end[long]), _excused(case, data)) if long.any() else Spans.empty()
    long = (free.end - free.start) >= least
    start, end = free.start[long], free.end[long]
    # What comes after it must be a call of the step: the end of the step is not lateness.
    calls = np.append(host.start, np.iinfo(np.int64).max)
    after = np.searchsorted(host.start, end)
    kept = (calls[after] < host.end) if len(after) else np.zeros(0, dtype=bool)
    start, end, after = start[kept], end[kept], after[kept]
    comm = np.sort(data.launched_at[(data.role == COMM) & (data.launched_at >= host.begin)])
    place = np.searchsorted(comm, start)
    return pl.DataFrame(
        {
            "rank": np.full(len(start), data.rank, dtype=np.int64),
            "place": place.astype(np.int64),
            "start": start,
            "end": end,
            "ns": end - start,
            "slower": np.full(len(start), slower),
            "follows_input": _fetching(data, start, end),
        }
    )


def _fetching(data: RankData, start: I64, end: I64) -> Mask:
    """Whether most of a stretch is getting input."""
    if len(start) == 0:
        return np.zeros(0, dtype=bool)
    fetching = host_late(data)[1]
    most: Mask = 2 * covered(start, end, fetching) > end - start
    return most


def _excused(case: Case, data: RankData) -> Spans:
    """Stretches that other findings speak of: getting input, and collecting garbage."""
    parts = [data_ranges(data)]
    if case.profile.has("host") and data.host.height:
        gc = data.host.filter(pl.col("kind") == "gc")
        parts.append(union(gc["start_ns"].to_numpy(), gc["end_ns"].to_numpy()))
    return join(*parts)


def remedy(case: Case) -> Change:
    """The step with nobody late."""
    return reduce(and_, (one.change for one in case.once(late)), Change())


def detect(case: Case) -> list[Finding]:
    try:
        findings, unknown = [_finding(case, one) for one in case.once(late)], None
    except CannotAnswer as why:  # arrivals tell who is late even where no call was recorded
        findings, unknown = [], why
    arrival = late_without_cause(case) if not findings and len(case.ranks) > 1 else None
    if arrival is not None:
        return [comes_last(case, ID, arrival)]
    if unknown is not None:
        raise unknown
    return findings


def _finding(case: Case, one: _Late) -> Finding:
    waiting = several(len(case.ranks) - len(one.ranks), "rank waits", "ranks wait")
    who = some_ranks(one.ranks)
    who = f"host {one.host} ({who})" if one.host else who
    if one.from_before:
        return begins_late(case, ID, one.ranks, one.ns, who, one.host is not None)
    # Cutting a stretch cannot give back more than its length.
    saved = case.credit(ID, one.change, one.ns)
    worst = max(one.ranks, key=lambda r: (hosts(case)[r].idle_ns(*LATE), -r))
    idle, figures, command = lost_by(case, hosts(case)[worst], *LATE, claim=saved)
    return Finding(
        ID,
        title(
            "late-node/finding",
            who=who,
            is_="is" if len(one.ranks) == 1 or one.host is not None else "are",
            ns=about(one.ns),
            at=one.at,
        ),
        saved,
        sure(case),
        f"its host makes no CUDA call for longer than the others at the same place, by {about(one.ns)} per step, "
        f"and the other {waiting} for it; the GPU of rank {worst} "
        f"idles for {idle}",
        advice("late-node/finding"),
        command,
        ranks=one.ranks,
        figures=figures,
        where=beside(case, one.where, peer_of(case, worst, one.ranks)),
        covers={r: hosts(case)[r].gaps_touched(s.start, s.end) for r, s in one.change.host_time_cut.items()},
    )
