"""Slow links by hand: pairs and groups beside similar ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from stepscope.derive.comm.across import Across
from stepscope.derive.comm.calls import GROUPS, SIDES
from stepscope.derive.comm.clock_fit import Clocks
from stepscope.derive.comm.matching import match
from stepscope.derive.peers.links import FEWEST_TRANSFERS, SLOW_LINK, SlowLinks, slow_links

#: Transfers of a link, one after the other: what each takes.
Times = dict[tuple[int, ...], list[int]]


def job(
    links: Times,
    hosts: list[str],
    clocks: Clocks | None = None,
    size: int = 64,
    devices: list[int] | None = None,
) -> Across:
    """Transfers between pairs, and all-reduces among more ranks; all arrive together, one transfer after the other."""
    devices = devices or list(range(len(hosts)))
    rows: list[dict[str, Any]] = []
    communicators: dict[str, tuple[int, ...]] = {"pairs": tuple(range(len(hosts)))}
    for members, times in links.items():
        text = "pairs" if len(members) == 2 else "group " + "-".join(map(str, members))
        communicators[text] = tuple(range(len(hosts))) if text == "pairs" else members
        for k, ns in enumerate(times):
            for rank in members:
                row = {"rank": rank, "seq": k, "start_ns": 1_000_000 * k, "end_ns": 1_000_000 * k + ns, "bytes": size}
                if len(members) == 2:
                    row |= {"send": rank == members[0], "peer": members[rank == members[0]], "kind": "send_recv"}
                rows.append({"communicator": text, "kind": "all_reduce"} | row)
    full = [
        dict.fromkeys(SIDES)
        | {"op": i, "launched_ns": r["start_ns"], "stream": 7, "parted": False, "known_by": "payload"}
        | r
        for i, r in enumerate(rows)
    ]
    sides = pl.DataFrame(full, schema=SIDES).with_columns(pl.col("rank").alias("source"))
    groups = [
        dict.fromkeys(GROUPS) | {"rank": rank, "communicator": text, "comm_size": len(members), "known_by": "payload"}
        for text, members in communicators.items()
        for rank in members
    ]
    ranks = pl.DataFrame(
        [
            (rank, rank, None, None, host, device)
            for (rank, host), device in zip(enumerate(hosts), devices, strict=True)
        ],
        schema={"rank": pl.Int32, "source": pl.Int32, "setup": pl.String, "world_size": pl.Int32}
        | {"host": pl.String, "device": pl.Int32},
        orient="row",
    )
    matched = match(sides, pl.DataFrame(groups, schema=GROUPS), ranks)
    start, end = (matched.sides[c].to_numpy() for c in ("start_ns", "end_ns"))
    known = clocks or replace(Clocks.unaligned(len(hosts)), same=np.zeros(len(hosts), np.int64))
    return Across(matched, known, ranks, start, end)


def named(found: SlowLinks | None) -> tuple[set[tuple[int, ...]], tuple[int, ...], str | None]:
    if found is None:
        return set(), (), None
    return {tuple(ranks) for ranks in found.links["ranks"].to_list()}, found.ranks, found.host


QUICK, SLOWER = [100, 101, 99, 102, 100, 98], [200, 201, 199, 202, 200, 198]
ONE_HOST = ["a"] * 4


def test_a_pair_that_takes_twice_as_long():
    found = slow_links(job({(0, 1): QUICK, (2, 3): SLOWER, (1, 2): QUICK}, ONE_HOST), 1000)
    assert named(found) == ({(2, 3)}, (2, 3), None)
    assert found is not None
    link = found.links.row(0, named=True)
    assert (link["link"], link["kind"], link["slower"]) == ("2-3", "send_recv", 2.0)
    assert link["over_ns"] == pytest.approx(600, abs=6) == found.meetings["over_ns"].sum()


def test_how_slow_is_slow():
    for factor, slow in ((SLOW_LINK.value - 0.02, False), (SLOW_LINK.value + 0.02, True)):
        times = [round(100 * factor)] * 6
        assert (slow_links(job({(0, 1): QUICK, (2, 3): times}, ONE_HOST), 1000) is not None) == slow


def test_transfers_that_vary_as_much_as_links_differ_are_chance():
    """Two modes on both links, more often the long one on one of them."""
    often, seldom = [100, 900, 900, 900, 100, 900], [100, 100, 900, 100, 900, 100]
    assert slow_links(job({(0, 1): seldom, (2, 3): often}, ONE_HOST), 1000) is None


def test_a_few_transfers_say_nothing():
    fewest = int(FEWEST_TRANSFERS.value)
    for n in (fewest - 1, fewest):
        found = slow_links(job({(0, 1): QUICK, (2, 3): SLOWER[:n]}, ONE_HOST), 1000)
        assert (found is not None) == (n == fewest)


def test_one_long_transfer_makes_no_link_slow():
    """The first one makes the connections."""
    assert slow_links(job({(0, 1): QUICK, (2, 3): [9000, *QUICK]}, ONE_HOST), 1000) is None


def test_links_are_compared_with_similar_ones_alone():
    """A group of three and a pair, a pair between hosts and one within: nothing is similar."""
    assert slow_links(job({(0, 1): QUICK, (1, 2, 3): SLOWER}, ONE_HOST), 1000) is None
    assert slow_links(job({(0, 1): QUICK, (1, 2): SLOWER}, ["a", "a", "b", "b"]), 1000) is None


def test_half_of_the_links_may_be_slow():
    found = slow_links(job({(0, 1): QUICK, (0, 2): SLOWER, (0, 3): SLOWER, (1, 2): QUICK}, ONE_HOST), 1000)
    assert named(found) == ({(0, 2), (0, 3)}, (0,), None)


def test_a_host_that_is_in_all_slow_links_is_at_fault():
    hosts = ["a", "b", "c", "d"]
    found = slow_links(job({(0, 1): SLOWER, (1, 2): SLOWER, (2, 3): QUICK, (0, 3): QUICK}, hosts), 1000)
    assert named(found) == ({(0, 1), (1, 2)}, (1,), "b")


def test_groups_are_links_too():
    groups = {(0, 1, 2): QUICK, (3, 4, 5): SLOWER}
    assert named(slow_links(job(groups, ["a"] * 6), 1000)) == ({(3, 4, 5)}, (3, 4, 5), None)


def test_what_a_stretch_would_not_notice_is_not_named():
    links = job({(0, 1): QUICK, (2, 3): SLOWER}, ONE_HOST)
    assert slow_links(links, 25_000) is not None
    assert slow_links(links, 35_000) is None


def test_only_the_stretch_is_looked_at():
    links = job({(0, 1): QUICK * 2, (2, 3): [*QUICK, *SLOWER]}, ONE_HOST)
    later = links.start >= 6_000_000
    assert named(slow_links(links, 1000, later))[1] == (2, 3)
    assert slow_links(links, 1000, ~later) is None


def test_what_two_clocks_do_not_resolve_says_nothing():
    clocks = replace(Clocks.unaligned(4), same=np.arange(4), residual=150.0)
    links = {(0, 1): QUICK, (2, 3): SLOWER}
    assert slow_links(job(links, ONE_HOST, clocks), 1000) is None
    assert slow_links(job(links, ONE_HOST, replace(clocks, residual=50.0)), 1000) is not None


def test_where_hosts_have_no_names_devices_that_count_anew_begin_the_next_machine() -> None:
    """torch.profiler names no host: between 1 and 2 lies a network, between the others NVLink."""
    links = {(0, 1): [100] * 8, (1, 2): [400] * 8, (2, 3): [100] * 8, (0, 3): [410] * 8}
    files = [f"rank{r}" for r in range(4)]
    assert slow_links(job(links, files, devices=[0, 1, 0, 1]), 20_000) is None
    # On one machine they are alike, and two are slow; as with one GPU to a machine.
    slow = {(1, 2), (0, 3)}
    assert named(slow_links(job(links, files, devices=[0, 1, 2, 3]), 20_000))[0] == slow
    assert named(slow_links(job(links, files, devices=[0, 0, 0, 0]), 20_000))[0] == slow
    # Hosts that have names are as they are called.
    assert named(slow_links(job(links, ["a"] * 4, devices=[0, 1, 0, 1]), 20_000))[0] == slow
