"""Ranks read by processes, or by a Dask cluster, give the same answer."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs import written
from stepscope import api
from stepscope.api.workers import Cluster, Tasks
from stepscope.errors import BadInput
from stepscope.model import profile as model
from stepscope.model.result import Result
from stepscope.simulate.job.scenario import Scenario


@pytest.fixture(scope="module")
def job():
    faults = ("straggler:rank=5", "clock:node=3,offset_us=800")
    scenario = Scenario(schedule="fsdp", pp=1, ep=1, dp=8, nodes=4, layers=2, micro_batches=2, steps=2, faults=faults)
    with written(scenario) as (_, folder):
        yield folder


COMMANDS = {
    "stragglers": {},
    "critical-path": {"what_if": ("even-rank",)},
    "collectives": {},
    "mesh": {},
    "clocks": {},
    "info": {},
    "breakdown": {},
}


@pytest.fixture(scope="module")
def alone(job):
    return {c: api.analyse(api.open(job, cache=False), c, **more) for c, more in COMMANDS.items()}


def same(result: Result, other: Result) -> bool:
    return bool(result.rows.equals(other.rows) and result.notes == other.notes and result.summary == other.summary)


@pytest.mark.slow
def test_processes(job, alone):
    profile = api.open(job, cache=False, jobs=2)
    for command in ("stragglers", "critical-path", "info", "breakdown"):
        assert same(api.analyse(profile, command, **COMMANDS[command]), alone[command]), command
    assert alone["stragglers"].summary["stragglers"][0]["rank"] == 5
    assert "rank 5 " in alone["critical-path"].summary["what_if"][0]["meaning"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    distributed, dask = pytest.importorskip("distributed"), pytest.importorskip("dask")
    with (
        dask.config.set(temporary_directory=str(tmp_path_factory.mktemp("dask"))),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
    ):
        yield cluster


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_dask_cluster_of_several_workers(job, alone, cluster, tmp_path):
    """Named by the file that its scheduler writes; the next test gives an address."""
    (tmp_path / "cluster.json").write_text(json.dumps({"address": cluster.scheduler_address}))
    profile = api.open(job, cache=False, cluster=str(tmp_path / "cluster.json"))
    for command, more in COMMANDS.items():
        assert same(api.analyse(profile, command, **more), alone[command]), command


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_worker_that_dies_costs_no_answer(cluster, monkeypatch):
    """Of 64 ranks: a worker is killed while it reads, and others have read theirs."""
    faults = ("straggler:rank=5", "clock:node=3,offset_us=800")
    scenario = Scenario(schedule="fsdp", pp=1, ep=1, dp=64, nodes=64, layers=1, micro_batches=1, steps=2, faults=faults)
    with written(scenario) as (_, folder):
        expected = api.analyse(api.open(folder, cache=False, jobs=1), "stragglers")
        profile = api.open(folder, cache=False, cluster=cluster.scheduler_address)
        killed = _killing(monkeypatch, cluster)
        result = api.analyse(profile, "stragglers")
    assert len(killed) == 1 and same(result, expected)
    assert [row["rank"] for row in result.summary["stragglers"]] == [5]


def _killing(monkeypatch: pytest.MonkeyPatch, cluster: Any) -> list[int]:
    """Kill a worker at the first answer, one that has more to do; the processes that were killed."""
    killed: list[int] = []
    run = Cluster.run

    def kills(self: Cluster, tasks: Tasks) -> Iterator[tuple[int, Any]]:
        for done, answer in enumerate(run(self, tasks), 1):
            if not killed and done < len(tasks):
                with cluster.get_client() as client:
                    busy = {worker: keys for worker, keys in client.processing().items() if keys}
                    pids = client.run(os.getpid)
                assert busy
                killed.append(pids[max(busy, key=lambda worker: len(busy[worker]))])
                os.kill(killed[0], signal.SIGKILL)
            yield answer

    monkeypatch.setattr(Cluster, "run", kills)
    return killed


@pytest.mark.slow
def test_ranks_keep_the_numbers_of_the_whole_profile(job):
    """A worker sees one file: what it would call rank 0 is another rank of the job."""
    profile = api.open(job, cache=False, jobs=2)
    assert [r for part in profile.map(_ranks) for r in part] == list(range(8))
    assert profile.view([2, 7]).map(_ranks) == [[2], [7]]


def _ranks(part: model.Profile) -> list[int]:
    return part.ops["rank"].unique().sort().to_list()


def test_errors_of_workers_arrive(job):
    with pytest.raises(BadInput, match="no good; try another"):
        api.open(job, cache=False, jobs=2).map(_fails)


def _fails(part: model.Profile) -> None:
    raise BadInput("no good", "try another")


@pytest.mark.slow
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
