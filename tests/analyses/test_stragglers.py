"""The planted straggler is named with its cause, its victims are not. `make reliability` runs many more."""

from __future__ import annotations

import pytest

from jobs import Case, case, verdict, written
from marks import slow_unless
from stepscope import api
from stepscope.simulate.job.scenario import Scenario

BASE = {"layers": 4, "micro_batches": 4, "steps": 2, "seed": 11}


@pytest.mark.parametrize("seed", slow_unless((2, 5, 18, 22).__contains__, [s for s in range(26) if s % 10 != 9]))
def test_the_guilty_and_only_they_are_named(seed):
    assert verdict(case(seed)) is None


@pytest.mark.parametrize("schedule", slow_unless("fsdp".__eq__, ["dualpipev", "1f1b", "zero-bubble", "fsdp"]))
def test_nobody_is_named_in_a_healthy_job(schedule):
    mesh = {"pp": 1, "dp": 8, "ep": 1} if schedule == "fsdp" else {"pp": 2, "dp": 2, "ep": 2}
    assert verdict(Case(Scenario(schedule=schedule, nodes=2, **mesh, **BASE), (), "none")) is None


def test_a_slow_link_is_not_a_late_rank():
    """The link between two hosts of a pipeline: transfers are long, arrivals are not."""
    scenario = Scenario(
        schedule="1f1b", pp=8, ep=1, nodes=4, **{**BASE, "layers": 8}, faults=("slow-link:node=1,factor=4",)
    )
    with written(scenario) as (_, folder):
        result = api.analyse(api.open(folder, cache=False), "stragglers")
    assert {(r["rank"], r["cause"]) for r in result.rows.to_dicts() if r["cause"]} == {(2, "network"), (3, "network")}
    assert {link["ranks"] for link in result.summary["slow_links"]} == {"1-2", "3-4"}


def test_a_slow_pair_within_a_group_names_the_group():
    with written(Scenario(pp=2, ep=4, nodes=1, **BASE, faults=("slow-link:ranks=0-1",))) as (_, folder):
        result = api.analyse(api.open(folder, cache=False), "stragglers")
    said = {r["rank"]: r["cause"] for r in result.rows.to_dicts() if r["cause"]}
    assert said == dict.fromkeys(range(4), "network")


def test_a_slow_link_that_nothing_compares_with_is_said():
    """Two hosts and one group over both: its transfers are all there are. Nobody is named, and why is said."""
    mesh = {"schedule": "fsdp", "pp": 1, "dp": 8, "ep": 1, "nodes": 2}
    with written(Scenario(**mesh, **BASE, faults=("slow-link:node=1,factor=4",))) as (_, folder):
        result = api.analyse(api.open(folder, cache=False), "stragglers")
    assert result.rows["cause"].null_count() == 8
    assert any("no other of the same size and reach" in n for n in result.notes)


def test_links_that_can_be_compared_need_no_note():
    with written(Scenario(schedule="1f1b", pp=8, ep=1, nodes=4, **{**BASE, "layers": 8})) as (_, folder):
        result = api.analyse(api.open(folder, cache=False), "stragglers")
    assert not any("no other of the same size and reach" in n for n in result.notes)
