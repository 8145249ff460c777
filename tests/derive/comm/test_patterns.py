"""What communication is for, told by its pattern alone: simulated jobs without a label, whose meshes are known."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest

from faultcases import MESHES, scenario
from jobs import written
from stepscope import api
from stepscope.derive.comm.calls import sides_of
from stepscope.derive.comm.purpose import purpose_of
from stepscope.derive.rank.data import ranks_of
from stepscope.simulate.programs.execute import Job

#: What a communicator of each axis is for, by the operation; numbers over the world are for nothing.
TRUTH = {
    ("data", "all_reduce"): "dp_grads",
    ("data", "reduce_scatter"): "dp_grads",
    ("data", "all_gather"): "dp_params",
    ("tp", "all_reduce"): "tp",
    ("cp", "send_recv"): "cp_ring",
    ("pp", "send_recv"): "pp_p2p",
    ("world", "send_recv"): "pp_p2p",
    # How large a communicator is, is said when it is made: before these captures. Of all ranks it could as well be.
    ("ep", "all_to_all"): "unknown",
}
CASES = (
    ("ddp", {"dp": 4, "ep": 1}),
    ("fsdp", {"dp": 4, "ep": 1}),
    ("ddp", {"dp": 2, "ep": 1, "tp": 2}),
    ("fsdp", {"dp": 1, "ep": 1, "cp": 3, "nodes": 1}),
    pytest.param("ddp", {"dp": 2, "ep": 1, "cp": 4}, marks=pytest.mark.slow),
    pytest.param("1f1b", {"dp": 2, "ep": 1, "tp": 2}, marks=pytest.mark.slow),
    pytest.param("interleaved", {"dp": 2, "ep": 2}, marks=pytest.mark.slow),
    pytest.param("zero-bubble", {"dp": 1, "ep": 1, "cp": 3}, marks=pytest.mark.slow),
    pytest.param("dualpipev", {"dp": 2, "ep": 2}, marks=pytest.mark.slow),
)


def _unlabelled(folder: Path) -> None:
    """Only what NCCL says of itself is left of the ranges."""
    for path in folder.glob("*.sqlite"):
        with sqlite3.connect(path) as file:
            file.execute(
                "DELETE FROM NVTX_EVENTS WHERE (text IS NULL OR text NOT LIKE 'nccl%') AND "
                "(textId IS NULL OR textId NOT IN (SELECT id FROM StringIds WHERE value LIKE 'nccl%')) "
                "AND eventType IN (59, 60)"
            )
        file.close()


def _axes(job: Job, rank: int) -> dict[str, str]:
    """By communicator: the axis that the simulation made it for."""
    axes = dict(job.mesh.of[rank])
    if axes["data"] == axes["dp"]:
        del axes["dp"]
    return {hex(job.mesh.groups[at].id): "pp" if axis.startswith("pp") else axis for axis, at in axes.items()}


@pytest.mark.parametrize(("schedule", "mesh"), CASES)
def test_purposes_without_labels(schedule: str, mesh: dict[str, int]) -> None:
    assert schedule in MESHES
    wrong: dict[tuple[str, str, str], int] = defaultdict(int)
    right = 0
    with written(scenario(schedule, None, **mesh)) as (job, folder):
        _unlabelled(folder)
        profile = api.open(folder, cache=False)
        for data in ranks_of(profile):
            axes = _axes(job, data.rank)
            sides = sides_of(profile, data).unique("op", maintain_order=True).filter(pl.col("bytes") > 4096)
            told = purpose_of(profile, data, sides["op"].to_numpy())
            for comm, kind, purpose in zip(sides["communicator"], sides["kind"], told, strict=True):
                true = TRUTH.get((axes.get(comm, "?"), kind))
                if true == purpose:
                    right += 1
                else:
                    wrong[axes.get(comm, comm), kind, purpose] += 1
    assert right > 0
    assert dict(wrong) == {}
