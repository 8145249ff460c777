"""Who made whom wait, followed to its root (semantics §7).

Each meeting blames its last rank for the time after the last but one. That rank may itself have been held up: take the
communication that its arrival waited for. If the rank that it is compared with was there too, both left it together,
and the difference is the late rank's own. If not, the time for which it waited there passes on to whoever came last
there, who is now compared with it; the rest goes further back along the late rank's own way, in the same manner. A
kernel of several transfers that all began with its own arrival is one communication: which was through last is chance.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.comm.across import Across
from stepscope.derive.comm.ending import ending_sides
from stepscope.intervals.arrays import I64


class Blame(Struct, frozen=True):
    """By rank (rows of `ranks`): lateness of its own, before passing on, and how often it came last."""

    ranks: I64
    late: I64
    raw: I64
    times: I64


def blame(a: Across) -> Blame:
    """From the matched sides and the `chain` of every rank."""
    ranks = np.unique(a.rank)
    who = np.searchsorted(ranks, a.rank)  # rank by its place
    late, raw = np.zeros(len(ranks), np.int64), np.zeros(len(ranks), np.int64)
    last, second = a.last_side, a.second_side
    amount = a.start[last] - a.start[second]
    amount[(a.count < 2) | (amount <= _unclear(a, last, second))] = 0
    np.add.at(raw, who[last], amount)
    times = np.bincount(who[last][amount > 0], minlength=len(ranks))
    before = _previous(a)
    key = a.meeting * len(ranks) + who
    kernel, beside = _beside(a, ranks)
    side, other, ns = last[amount > 0], who[second][amount > 0], amount[amount > 0]
    # All chains go back together; each step goes to an earlier communication, so there are no more than those.
    for _ in range(a.meetings.height + 1):
        if len(side) == 0:
            break
        rank, at = who[side], before[side]
        meeting = a.meeting[np.maximum(at, 0)]
        held = np.clip(a.last[meeting] - a.start[np.maximum(at, 0)], 0, ns)
        wanted = meeting * len(ranks) + other
        there = key[np.minimum(np.searchsorted(key, wanted), len(key) - 1)] == wanted
        there |= np.isin(kernel[at] * len(ranks) + other, beside)
        kept = (at < 0) | there
        np.add.at(late, rank[kept], ns[kept])
        go, rest = ~kept & (held > 0), ~kept & (ns > held)
        side, other, ns = _merged(
            np.concatenate([a.last_side[meeting][go], at[rest]]),
            np.concatenate([rank[go], other[rest]]),
            np.concatenate([held[go], (ns - held)[rest]]),
            len(ranks),
        )
    return Blame(ranks, late, raw, times)


def late_hosts(a: Across) -> dict[str, int]:
    """By host, for how long everyone else waited for all of its ranks: they share what made them late."""
    hosts = a.ranks.select(pl.col("rank").cast(pl.Int64), "host")
    frame = pl.DataFrame({"meeting": a.meeting, "rank": a.rank, "start": a.start}).join(hosts, on="rank", how="left")
    came = frame.group_by("meeting", "host").agg(pl.col("start").min().alias("lo"), pl.col("start").max().alias("hi"))
    came = came.sort("meeting", "lo", "host").filter(pl.len().over("meeting") > 1)
    last = came.group_by("meeting", maintain_order=True).agg(
        pl.col("host").last(), (pl.col("lo").last() - pl.col("hi").head(pl.len() - 1).max()).alias("ns")
    )
    late = last.filter(pl.col("ns") > round(a.clocks.residual)).group_by("host").agg(pl.col("ns").sum())
    return dict(late.iter_rows())


def _unclear(a: Across, last: I64, second: I64) -> I64:
    """Differences that the clocks do not resolve: up to the residual, where two clocks are compared."""
    source = a.matched.sides["source"].cast(pl.Int64).to_numpy()
    same = a.clocks.same[source]
    return np.where(same[last] == same[second], 0, round(a.clocks.residual))


def _merged(side: I64, other: I64, ns: I64, ranks: int) -> tuple[I64, I64, I64]:
    """Chains at the same side, compared with the same rank, as one."""
    key, place = np.unique(side * ranks + other, return_inverse=True)
    total = np.zeros(len(key), dtype=np.int64)
    np.add.at(total, place, ns)
    return key // ranks, key % ranks, total


def _beside(a: Across, ranks: I64) -> tuple[I64, I64]:
    """The kernel of each side, by number; and, of the transfers that began last in their kernel, kernel and peer.

    Those as one number, kernel · ranks + place of the peer.
    """
    ops = a.matched.sides.select(pl.struct("rank", "op").rank("dense").cast(pl.Int64))
    kernel = ops.to_series().to_numpy() - 1
    last = a.last[a.meeting]
    latest = np.full(int(kernel.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(latest, kernel, last)
    source, target = (a.meetings[c].cast(pl.Int64).to_numpy()[a.meeting] for c in ("src", "dst"))
    peer = np.where(a.rank == source, target, source)
    at = np.minimum(np.searchsorted(ranks, peer), len(ranks) - 1)
    chosen = (source >= 0) & (last == latest[kernel]) & (ranks[at] == peer)
    return kernel, (kernel * len(ranks) + at)[chosen]


def _previous(a: Across) -> I64:
    """For each side, the side of the same rank that its arrival waited for; -1 for none."""
    sides = a.matched.sides.select("rank", "op")
    ended = ending_sides(a)
    chain = a.facts["chain"].select("rank", "op", "before")
    # An op that was not matched passes the question on to the one before it.
    hidden = chain.join(ended, on=["rank", "op"], how="anti")
    for _ in range(8):
        skipped = chain.join(
            hidden.rename({"op": "before", "before": "further"}),
            on=["rank", "before"],
            how="left",
            maintain_order="left",
        )
        if skipped["further"].null_count() == skipped.height:
            break
        chain = skipped.with_columns(pl.coalesce("further", "before").alias("before")).drop("further")
    joined = sides.join(chain, on=["rank", "op"], how="left", maintain_order="left").join(
        ended.rename({"op": "before", "side": "held"}), on=["rank", "before"], how="left", maintain_order="left"
    )
    previous: I64 = joined["held"].cast(pl.Int64).fill_null(-1).to_numpy()
    # Clocks are not exact: what is said to have waited for something later did not.
    return np.where((previous >= 0) & (a.last[a.meeting[np.maximum(previous, 0)]] < a.last[a.meeting]), previous, -1)
