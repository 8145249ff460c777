"""Hosts beside each other, by hand: shares of a capture in which a GPU had no work because its host was late."""

from __future__ import annotations

import polars as pl
import pytest

from stepscope.analyses.stragglers.facts import OWN
from stepscope.analyses.stragglers.host import host_excess

SPAN = 1_000_000
STAGES = {0: "0", 1: "0", 2: "1", 3: "1"}


def late(*percent: float, groups: dict[int, str] | None = None, data: tuple[float, ...] | None = None) -> list[int]:
    """Ranks whose host is late, of hosts that are late for these shares of the capture."""
    rows = [
        (rank, SPAN, 10, round(share * SPAN / 100), round((data[rank] if data else 0) * SPAN / 100), False, 0, SPAN)
        for rank, share in enumerate(percent)
    ]
    own = pl.DataFrame(rows, schema=OWN, orient="row")
    same = groups or dict.fromkeys(range(len(percent)), "")
    table = host_excess(own, same, set(range(len(percent))), SPAN)
    column = "data_ns" if data else "host_ns"
    return table.filter(pl.col(column) > 0)["rank"].to_list()


@pytest.mark.parametrize(
    ("percent", "ranks"),
    [
        # Healthy captures of the reference workload on one H200, by nsys and torch.profiler.
        ((1.99, 2.42, 3.45, 2.02), []),
        ((2.06, 2.33, 1.15, 1.34), []),
        ((2.91, 1.51, 2.39, 1.69), []),
        ((1.73, 1.65, 0.96, 0.97), []),
        # What was planted: rank 1 pauses before every stage; ranks 2 and 3 come late to the step.
        ((1.2, 64.43, 1.66, 0.78), [1]),
        ((2.41, 2.09, 39.31, 39.27), [2, 3]),
        # What differs between stages is nobody's fault: memory is taken from the driver on all of them.
        ((25.16, 24.64, 32.73, 32.36), []),
    ],
)
def test_captures_whose_truth_is_known(percent: tuple[float, ...], ranks: list[int]) -> None:
    assert late(*percent, groups=STAGES) == ranks


def test_a_small_excess_counts_where_all_others_are_alike() -> None:
    assert late(1.46, 1.46, 1.47, 2.26, groups=STAGES) == [3]
    assert late(1.46, 1.80, 1.47, 2.26, groups=STAGES) == []  # they differ by half as much themselves
    assert late(1.46, 1.46, 1.47, 1.90, groups=STAGES) == []  # too little to be noticed


def test_what_is_usual_differs_between_stages() -> None:
    """Ranks of the second stage are later by less than their neighbour is, but by more than a sixth of that."""
    halves = {rank: str(rank // 4) for rank in range(8)}
    percent = (1.36, 1.36, 1.34, 1.36, 1.43, 1.42, 2.06, 1.45)
    assert late(*percent, groups=halves) == [6]
    assert late(*percent) == []


def test_a_whole_stage_must_be_late_by_much() -> None:
    assert late(1.46, 1.46, 2.26, 2.26, groups=STAGES) == []
    assert late(1.46, 1.46, 4.0, 4.0, groups=STAGES) == [2, 3]
    assert late(1.46, 1.46, 2.26, 2.26) == [2, 3]  # a host of two, among ranks that do the same


def test_of_two_ranks_chance_is_not_known() -> None:
    assert late(6.69, 9.22) == []
    assert late(6.69, 17.0) == [1]


def test_input_counts_from_what_a_step_would_notice() -> None:
    assert late(5, 5, 5, 5, data=(0.1, 0.1, 1.9, 0.1)) == []
    assert late(5, 5, 5, 5, data=(0.1, 0.1, 2.2, 0.1)) == [2]


def test_a_rank_alone_has_nobody_beside_it() -> None:
    assert late(50.0) == []
