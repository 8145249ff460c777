"""Matching by hand: ranks that died, came late or are missing; transfers; what only order or labels can pair."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from stepscope.derive.comm.calls import GROUPS, SIDES
from stepscope.derive.comm.matching import match

RANKS = {"rank": pl.Int32, "source": pl.Int32, "setup": pl.String, "world_size": pl.Int32, "host": pl.String}


def sides(*rows: dict[str, Any]) -> pl.DataFrame:
    usual = {"stream": 7, "parted": False, "known_by": "payload", "kind": "all_reduce", "bytes": 64}
    full = [dict.fromkeys(SIDES) | usual | {"launched_ns": r["start_ns"], "op": i} | r for i, r in enumerate(rows)]
    return pl.DataFrame(full, schema=SIDES)


def collective(rank: int, seq: int | None, start: int, end: int, comm: str | None = "c", **more: Any) -> dict[str, Any]:
    return {"rank": rank, "seq": seq, "start_ns": start, "end_ns": end, "communicator": comm, **more}


def groups(ranks: list[int], size: int | None = None, comm: str = "c", **more: Any) -> pl.DataFrame:
    rows = [
        dict.fromkeys(GROUPS) | {"rank": r, "communicator": comm, "comm_size": size, "known_by": "payload"} | more
        for r in ranks
    ]
    return pl.DataFrame(rows, schema=GROUPS)


def ranks(n: int, setup: str | None = None, world: int | None = None) -> pl.DataFrame:
    rows = [(r, 0, setup and setup.format(r), world, "h") for r in range(n)]
    return pl.DataFrame(rows, schema=RANKS, orient="row")


def pairs(found) -> set[tuple[int, ...]]:
    """The ops of each meeting."""
    return {tuple(m["op"].to_list()) for _, m in found.sides.group_by("meeting")}


def test_the_kth_of_a_communicator():
    table = sides(*(collective(r, k, 100 * k + r, 100 * k + 50) for r in range(2) for k in range(3)))
    found = match(table, groups([0, 1]), ranks(2))
    assert pairs(found) == {(0, 3), (1, 4), (2, 5)} and found.notes == []
    assert found.meetings["size"].to_list() == [2, 2, 2]


def test_a_rank_that_died_keeps_its_first_ones():
    ends = [100, 230, 300, 470, 520]
    table = sides(
        *(collective(0, k, e - 20, e) for k, e in enumerate(ends)),
        *(collective(1, k, e - 10, e + 1) for k, e in enumerate(ends[:3])),
    )
    found = match(table, groups([0, 1]), ranks(2))
    assert pairs(found) == {(0, 5), (1, 6), (2, 7), (3,), (4,)}
    assert "rank 1 recorded fewer" in found.notes[0]


def test_a_rank_whose_capture_began_late_keeps_its_last_ones():
    ends = [100, 230, 300, 470, 520]
    table = sides(
        *(collective(0, k, e - 20, e) for k, e in enumerate(ends)),
        *(collective(1, k, e + 7_000_000, e + 7_000_001) for k, e in enumerate(ends[2:])),  # and another clock
    )
    assert pairs(match(table, groups([0, 1]), ranks(2))) == {(0,), (1,), (2, 5), (3, 6), (4, 7)}


def test_operations_that_differ_are_left_out():
    table = sides(
        collective(0, 0, 0, 10),
        collective(0, 1, 20, 30),
        collective(1, 0, 0, 10),
        collective(1, 1, 20, 30, kind="broadcast"),
    )
    found = match(table, groups([0, 1]), ranks(2))
    assert pairs(found) == {(0, 2)} and "differ in their operation" in found.notes[-1]


def test_a_missing_rank_is_counted():
    found = match(sides(collective(0, 0, 0, 10), collective(1, 0, 0, 10)), groups([0, 1], size=4), ranks(2))
    assert found.meetings.select("present", "size").row(0) == (2, 4)


def test_bytes_are_those_of_nccl_tests():
    table = sides(
        *(collective(r, 0, 0, 10, kind="all_gather", parted=True) for r in range(4)),
        *(collective(r, 1, 20, 30, kind="all_gather", known_by="metadata", bytes=256) for r in range(4)),
        *(collective(r, 2, 40, 50, kind="all_reduce") for r in range(4)),
    )
    assert match(table, groups(list(range(4))), ranks(4)).meetings["bytes"].to_list() == [256, 256, 64]


def transfer(rank: int, send: bool, peer: int, seq: int, start: int, **more: Any) -> dict[str, Any]:
    return collective(rank, seq, start, start + 5, send=send, peer=peer, kind="send_recv", **more)


def test_transfers_by_pair_direction_and_ordinal():
    table = sides(
        transfer(0, True, 1, 0, 0),
        transfer(0, True, 1, 1, 10),
        transfer(0, False, 1, 0, 20),
        transfer(0, True, 0, 0, 20),  # to itself
        transfer(1, False, 0, 0, 1),
        transfer(1, False, 0, 1, 11),
        transfer(1, True, 0, 0, 21),
    )
    found = match(table, groups([0, 1]), ranks(2))
    assert pairs(found) == {(0, 4), (1, 5), (2, 6)}
    assert set(found.meetings.select("src", "dst", "seq").rows()) == {(0, 1, 0), (0, 1, 1), (1, 0, 0)}


@pytest.mark.parametrize(("peers", "wide"), [((1, 0), False), ((6, 2), True)])
def test_peers_may_be_communicator_ranks_or_global_ones(peers, wide):
    """Torch writes either; global ones exceed the size of the group."""
    table = sides(transfer(2, True, peers[0], 0, 0), transfer(6, False, peers[1], 0, 1))
    told = groups([2, 6], size=2, members="[2, 6]", known_by="metadata")
    found = match(table, told, ranks(8))
    assert found.meetings.select("src", "dst", "present").rows() == [(2, 6, 2)]


def test_an_unknown_peer_is_not_guessed():
    found = match(sides(transfer(0, True, 3, 0, 0), collective(1, 0, 0, 5)), groups([0, 1], size=4), ranks(2))
    assert found.meetings["kind"].to_list() == ["all_reduce"] and "peer whose rank is not known" in found.notes[0]


def test_order_alone_needs_agreement():
    bare = {"comm": None, "known_by": None, "bytes": None}
    table = sides(*(collective(r, None, 10 * k, 10 * k + 9, **bare) for r in range(2) for k in range(3)))
    found = match(table, groups([]), ranks(2))
    assert len(pairs(found)) == 3 and found.meetings["known_by"].unique().to_list() == ["order"]
    odd = match(table.filter(pl.col("op") != 5), groups([]), ranks(2))
    assert odd.meetings.height == 0 and "differ in number, name or time" in odd.notes[0]
    few = match(table, groups([]), ranks(2, world=128))
    assert few.meetings.height == 0 and "2 of 128" in few.notes[0]


def test_order_is_refused_where_it_pairs_what_did_not_overlap():
    bare = {"comm": None, "known_by": None, "bytes": None}
    table = sides(
        *(collective(r, None, 10 * k + 40 * r, 10 * k + 40 * r + 9, **bare) for r in range(2) for k in range(3))
    )
    assert match(table, groups([]), ranks(2)).meetings.height == 0


def test_labels_say_whose_all_to_all_it_is():
    bare = {"comm": None, "known_by": None, "kind": "send_recv", "purpose": "ep_a2a"}
    table = sides(*(collective(r, None, 10 * k, 10 * k + 9, **bare) for r in range(4) for k in range(2)))
    told = ranks(4).with_columns(
        pl.Series("setup", [f"rank={r}; pp={r // 2}/2 dp=0/1 cp=0/1 ep={r % 2}/2; mbs=1 seq=8" for r in range(4)])
    )
    found = match(table, groups([]), told)
    assert pairs(found) == {(0, 2), (1, 3), (4, 6), (5, 7)}
    assert found.meetings.select("kind", "known_by").unique().rows() == [("all_to_all", "labels")]


def staged(*rows: dict[str, Any]):
    """Transfers of a pipeline of two, without communicators: labels alone say who is on the other side."""
    told = ranks(2).with_columns(pl.Series("setup", [f"rank={r}; pp={r}/2; mbs=1 seq=8" for r in range(2)]))
    return match(sides(*rows), groups([]), told)


BARE = {"comm": None, "known_by": None, "purpose": "pp_p2p"}


def test_what_one_stage_sends_the_other_receives():
    found = staged(
        transfer(0, True, 1, 0, 0, **BARE),
        transfer(0, False, 1, 0, 10, **BARE),
        transfer(0, True, 1, 1, 20, **BARE),
        transfer(1, False, 0, 0, 1, **BARE),
        transfer(1, False, 0, 1, 21, **BARE),  # in another order than its peer: ordinals are by direction
        transfer(1, True, 0, 0, 22, **BARE),
    )
    assert pairs(found) == {(0, 3), (1, 5), (2, 4)}
    assert set(found.meetings.select("src", "dst", "seq").rows()) == {(0, 1, 0), (1, 0, 0), (0, 1, 1)}


def test_stages_that_both_send_are_not_matched():
    """As many ops of the same name on both, but nobody receives what the other sends."""
    found = staged(*(transfer(r, True, 1 - r, k, 10 * k, **BARE) for r in range(2) for k in range(2)))
    assert found.meetings.height == 0
    assert "differ in number, name or direction" in found.notes[0]
