"""`stragglers` and `diagnose` name the same ranks; nobody is blamed in the place of one that is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs import written
from stepscope import api
from stepscope.simulate.job.scenario import Scenario

JOB = {
    "schedule": "fsdp",
    "pp": 1,
    "dp": 4,
    "ep": 1,
    "nodes": 4,
    "layers": 4,
    "micro_batches": 2,
    "steps": 3,
    "seed": 3,
}


def test_one_of_two_ranks_comes_late_for_no_recorded_reason(shared: Path) -> None:
    """One all-gather; one node comes 167 of 186 ms late."""
    profile = api.open(str(shared / "judged" / "alcf_two_ranks.*.sqlite"), cache=False)
    (row,) = api.analyse(profile, "diagnose").rows.to_dicts()
    assert (row["id"], row["ranks"]) == ("late-node", "1")
    assert row["recoverable_ns"] == pytest.approx(167e6, rel=0.01)
    late = api.analyse(profile, "stragglers").rows.row(0, named=True)
    assert (late["rank"], late["late_ns"]) == (1, pytest.approx(167e6, rel=0.01))


@pytest.mark.parametrize("fault", ["straggler:rank=2,factor=1.5", "slow-python:rank=2,us=4000", "late-node:node=2"])
def test_without_the_file_of_the_late_rank_nobody_is_blamed(fault: str) -> None:
    with written(Scenario(**JOB, faults=(fault,))) as (_, folder):
        whole = api.analyse(api.open(folder, cache=False), "stragglers")
        (folder / "node2.sqlite").unlink()
        rest = api.open(folder, cache=False)
        said, found = api.analyse(rest, "stragglers"), api.analyse(rest, "diagnose")
    assert [r["rank"] for r in whole.summary["stragglers"]] == [2]
    assert said.summary["stragglers"] == [] and "may be missing" in said.summary["statement"]
    assert not {"straggler", "compute-imbalance", "late-node"} & set(found.rows["id"].to_list())
    exposed = [r for r in found.rows.to_dicts() if r["id"] == "exposed-communication"]
    assert exposed, "all wait for it, so that little is hidden"
    for row in exposed:  # it is no network's fault, as far as anybody can tell
        assert row["cause"] == "possible" and row["expected_ns"] < row["recoverable_ns"]
        assert "involve ranks that are not in the profile" in row["evidence"]
        assert row["try_next"].startswith("record all ranks")


@pytest.mark.parametrize(
    ("fault", "ids"),
    [
        ("straggler:rank=1,factor=1.3", {"straggler"}),
        ("larger-batch:rank=1,factor=1.3", {"straggler"}),
        ("more-launches:rank=1", {"straggler"}),
        ("slow-python:rank=1,us=4000", {"late-node"}),
        ("dataloader:rank=1", {"data-stall"}),
    ],
)
def test_both_name_the_same_rank(fault: str, ids: set[str]) -> None:
    with written(Scenario(**JOB, faults=(fault,))) as (_, folder):
        profile = api.open(folder, cache=False)
        said, found = api.analyse(profile, "stragglers"), api.analyse(profile, "diagnose", least=1.0)
    assert [r["rank"] for r in said.summary["stragglers"]] == [1]
    named = {r["id"]: r["ranks"] for r in found.rows.to_dicts() if r["id"] in ids}
    assert named == dict.fromkeys(ids, "1")
