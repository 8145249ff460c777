"""Ranks read by processes, or by a Dask cluster, give the same answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import written

from stepscope import api
from stepscope.errors import BadInput
from stepscope.simulate.scenario import Scenario


@pytest.fixture(scope="module")
def job():
    faults = ("straggler:rank=5", "clock:node=3,offset_us=800")
    scenario = Scenario(schedule="fsdp", pp=1, ep=1, dp=8, nodes=4, layers=2, micro_batches=2, steps=2, faults=faults)
    with written(scenario) as (_, folder):
        yield folder


@pytest.fixture(scope="module")
def alone(job):
    return api.analyse(api.open(job, cache=False), "stragglers")


def test_processes(job, alone):
    result = api.analyse(api.open(job, cache=False, jobs=2), "stragglers")
    assert result.rows.equals(alone.rows) and result.notes == alone.notes
    assert result.summary["stragglers"][0]["rank"] == 5


@pytest.mark.filterwarnings("default")
def test_a_dask_cluster_of_several_workers(job, alone):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        assert len(cluster.workers) == 2
        result = api.analyse(api.open(job, cache=False, cluster=cluster.scheduler_address), "stragglers")
    assert result.rows.equals(alone.rows) and result.notes == alone.notes


def test_ranks_keep_the_numbers_of_the_whole_profile(job):
    """A worker sees one file: what it would call rank 0 is another rank of the job."""
    profile = api.open(job, cache=False, jobs=2)
    assert [r for part in profile.map(_ranks) for r in part] == list(range(8))
    assert profile.select([2, 7]).map(_ranks) == [[2], [7]]


def _ranks(part: api.model.Profile) -> list[int]:
    return part.ops["rank"].unique().sort().to_list()


def test_errors_of_workers_arrive(job):
    with pytest.raises(BadInput, match="no good; try another"):
        api.open(job, cache=False, jobs=2).map(_fails)


def _fails(part: api.model.Profile) -> None:
    raise BadInput("no good", "try another")


def test_bad_options(job):
    with pytest.raises(BadInput, match="--jobs 0"):
        api.open(job, jobs=0)
    with pytest.raises(BadInput, match="--cluster nowhere"):
        api.analyse(api.open(job, cache=False, cluster="nowhere://x"), "clocks")


def test_one_source_at_a_time(job, monkeypatch):
    """Without workers too, a part's tables are gone before the next part is read."""
    profile = api.open(job, cache=False)
    api.analyse(profile, "collectives")
    assert not profile._tables and isinstance(profile.paths[0], Path)
