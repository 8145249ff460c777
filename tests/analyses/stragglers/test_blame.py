"""Blame by hand: who made whom wait, passed on to whoever held them up."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from msgspec.structs import replace

from stepscope.analyses.stragglers.blame import Blame, blame, late_hosts
from stepscope.analyses.stragglers.facts import CHAIN
from stepscope.derive.comm.across import Across
from stepscope.derive.comm.calls import GROUPS, SIDES
from stepscope.derive.comm.clock_fit import Clocks
from stepscope.derive.comm.matching import match

#: Per communication: its ranks with their arrivals; all leave 10 after the last of them.
Arrivals = dict[int, int]


def job(
    *meetings: Arrivals, waited: dict[tuple[int, int], int] | None = None, hosts: str = "aaaa", residual: float = 0.0
) -> Across:
    """Communications of ranks, each a group of its own. `waited`: (communication, rank) -> what its arrival waited for.

    Without, a rank's arrival waited for the communication that it was in before.
    """
    rows: list[dict[str, Any]] = []
    chain: list[tuple[int, int, int]] = []
    before: dict[int, int] = {}
    for k, arrivals in enumerate(meetings):
        for rank, start in arrivals.items():
            op = 10 * k + rank
            rows.append({"rank": rank, "op": op, "start_ns": start, "end_ns": max(arrivals.values()) + 10})
            rows[-1] |= {"communicator": f"c{k}", "seq": 0, "launched_ns": start, "stream": 7, "parted": False}
            held = waited.get((k, rank), -1) if waited is not None else before.get(rank, -1)
            chain.append((rank, op, 10 * held + rank if held >= 0 else -1))
            before[rank] = k
    full = [dict.fromkeys(SIDES) | {"kind": "all_reduce", "bytes": 64, "known_by": "payload"} | row for row in rows]
    sides = pl.DataFrame(full, schema=SIDES).with_columns(pl.col("rank").alias("source"))
    told = [
        dict.fromkeys(GROUPS) | {"rank": r, "communicator": f"c{k}", "comm_size": len(m), "known_by": "payload"}
        for k, m in enumerate(meetings)
        for r in m
    ]
    everyone = sorted({rank for m in meetings for rank in m})
    ranks = pl.DataFrame(
        [(rank, rank, None, None, hosts[rank]) for rank in everyone],
        schema={"rank": pl.Int32, "source": pl.Int32, "setup": pl.String, "world_size": pl.Int32, "host": pl.String},
        orient="row",
    )
    matched = match(sides, pl.DataFrame(told, schema=GROUPS), ranks)
    clocks = replace(Clocks.unaligned(max(everyone) + 1), same=np.arange(max(everyone) + 1), residual=residual)
    start, end = (matched.sides[c].to_numpy() for c in ("start_ns", "end_ns"))
    return Across(matched, clocks, ranks, start, end, {"chain": pl.DataFrame(chain, schema=CHAIN, orient="row")})


def late(found: Blame) -> dict[int, int]:
    return dict(zip(found.ranks.tolist(), found.late.tolist(), strict=True))


def raw(found: Blame) -> dict[int, int]:
    return dict(zip(found.ranks.tolist(), found.raw.tolist(), strict=True))


def test_the_last_is_blamed_for_the_time_after_the_last_but_one():
    found = blame(job({0: 100, 1: 130, 2: 190}))
    assert late(found) == raw(found) == {0: 0, 1: 0, 2: 60}
    assert found.times.tolist() == [0, 0, 1]


def test_blame_passes_on_to_whoever_held_it_up():
    """Rank 1 waits 400 for rank 0, and so comes 405 late to rank 2: its own are the 5 after it could go on."""
    found = blame(job({0: 500, 1: 100}, {1: 515, 2: 110}))
    assert raw(found) == {0: 400, 1: 405, 2: 0}
    assert late(found) == {0: 800, 1: 5, 2: 0}


def test_what_both_left_together_is_the_late_ranks_own():
    """Ranks 0 and 1 leave the first together: what 1 takes until the second is its own, whatever came before."""
    found = blame(job({0: 500, 1: 100}, {0: 600, 1: 900}))
    assert late(found) == {0: 400, 1: 300}


def test_blame_follows_a_chain_of_victims():
    found = blame(job({0: 500, 1: 100}, {1: 510, 2: 110}, {2: 520, 3: 120}))
    assert raw(found) == {0: 400, 1: 400, 2: 400, 3: 0}
    assert late(found) == {0: 1200, 1: 0, 2: 0, 3: 0}


def test_an_arrival_that_waited_for_nothing_is_the_ranks_own():
    found = blame(job({0: 500, 1: 100}, {1: 515, 2: 110}, waited={}))
    assert late(found) == raw(found) == {0: 400, 1: 405, 2: 0}


def test_what_clocks_do_not_resolve_is_nobodys():
    assert late(blame(job({0: 100, 1: 130}, residual=30.0))) == {0: 0, 1: 0}
    assert late(blame(job({0: 100, 1: 131}, residual=30.0))) == {0: 0, 1: 31}


def test_ranks_of_a_host_that_are_late_together():
    """Nobody waits for either of them alone; all others wait for both."""
    met = job({0: 100, 1: 100, 2: 500, 3: 505}, hosts="aabb")
    assert late(blame(met)) == {0: 0, 1: 0, 2: 0, 3: 5}
    assert late_hosts(met) == {"b": 400}
