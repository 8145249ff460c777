"""Small tables of neighbouring ranks are made at once; what each rank keeps is its own part of them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from stepscope import api
from stepscope.derive.comm.calls import all_sides
from stepscope.derive.rank import together
from stepscope.derive.rank.data import RankData, rank_of
from stepscope.files import budget
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("together")
    scenario = Scenario(schedule="1f1b", pp=2, dp=2, nodes=1, layers=2, micro_batches=2, steps=2)
    simulate_to(scenario, folder, ("nsys",))
    return folder


def squares(asked: list[list[int]]) -> together.Derived:
    """Two rows for each rank but the second, which has none."""

    def function(ranks: list[RankData]) -> pl.DataFrame:
        asked.append([data.rank for data in ranks])
        rows = [(data.rank, data.rank**2) for data in ranks for _ in range(2) if data.rank != 1]
        return pl.DataFrame(rows, schema={"rank": pl.Int32, "square": pl.Int64}, orient="row")

    return function


def test_neighbours_are_asked_once_and_each_keeps_its_part(traced: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "TOGETHER", 3)
    asked: list[list[int]] = []
    profile, function = api.open(traced, cache=False), squares(asked)
    found = {rank: together.part(rank_of(profile, rank), function)["square"].to_list() for rank in (2, 0, 3, 1)}
    assert found == {0: [0, 0], 1: [], 2: [4, 4], 3: [9, 9]}
    assert asked == [[0, 1, 2], [3, 4, 5]]


def test_where_memory_is_tight_ranks_are_asked_one_by_one_and_answer_the_same(
    traced: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sides() -> list[pl.DataFrame]:
        profile = api.open(traced, cache=False)
        return [together.part(rank_of(profile, rank), all_sides) for rank in profile.rank_ids()]

    asked: list[list[int]] = []
    at_once = sides()
    monkeypatch.setattr(budget, "tight", lambda: True)
    together.part(rank_of(api.open(traced, cache=False), 2), squares(asked))
    assert asked == [[2]]
    assert len(at_once) > 1 and all(table.height for table in at_once)
    assert all(one.equals(other) for one, other in zip(at_once, sides(), strict=True))
