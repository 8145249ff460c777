"""What is concluded changes as the trace does: not at all, or as predicted. A rank of four has a larger batch."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from jobs import written
from stepscope import api
from stepscope.simulate.job.scenario import Scenario

SHAPE = {"schedule": "fsdp", "pp": 1, "dp": 4, "ep": 1, "nodes": 4}
TIMES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": ("start", "end"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("start", "end"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "end"),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": ("start", "end"),
    "NVTX_EVENTS": ("start", "end"),
}


@pytest.fixture(scope="module")
def job() -> Iterator[Path]:
    scenario = Scenario(**SHAPE, layers=4, micro_batches=2, steps=2, seed=3, faults=("larger-batch:rank=1,factor=1.4",))
    with written(scenario) as (_, folder):
        yield folder


def concluded(*files: Path) -> dict[str, Any]:
    profile = api.open(*map(str, files), cache=False)
    row = api.analyse(profile, "diagnose", only=("straggler", "compute-imbalance", "late-node")).rows.row(0, named=True)
    named = [r["rank"] for r in api.analyse(profile, "stragglers").summary["stragglers"]]
    return {k: row[k] for k in ("id", "ranks", "title", "recoverable_ns")} | {"stragglers": named}


def changed(job: Path, folder: Path, *statements: str) -> list[Path]:
    files = []
    for file in sorted(job.glob("*.sqlite")):
        files.append(Path(shutil.copy(file, folder / file.name)))
        with closing(sqlite3.connect(files[-1])) as db, db:
            for statement in statements:
                db.execute(statement)
    return files


def in_time(expression: str) -> list[str]:
    return [
        f"update {t} set {', '.join(f'{c} = {expression.format(c)}' for c in columns)}" for t, columns in TIMES.items()
    ]


def test_the_truth(job: Path) -> None:
    said = concluded(*job.glob("*.sqlite"))
    assert (said["id"], said["ranks"], said["stragglers"]) == ("straggler", "1", [1])
    assert "launches are 1.40 times as large" in said["title"]


def test_files_in_another_order_say_the_same(job: Path) -> None:
    files = sorted(job.glob("*.sqlite"))
    assert concluded(*files) == concluded(*reversed(files))


def test_a_later_capture_says_the_same(job: Path, tmp_path: Path) -> None:
    later = concluded(*changed(job, tmp_path, *in_time("{0} + 7000000123")))
    assert later == concluded(*job.glob("*.sqlite"))


def test_ranges_of_other_names_say_the_same_of_ranks(job: Path, tmp_path: Path) -> None:
    rename = "update NVTX_EVENTS set text = replace(text, 'forward mb', 'fwd') where text like 'forward%'"
    assert concluded(*changed(job, tmp_path, rename)) == concluded(*job.glob("*.sqlite"))


def test_twice_as_slow_loses_twice_as_much(job: Path, tmp_path: Path) -> None:
    slow, said = concluded(*changed(job, tmp_path, *in_time("2 * {0}"))), concluded(*job.glob("*.sqlite"))
    assert (slow["id"], slow["ranks"], slow["stragglers"]) == (said["id"], said["ranks"], said["stragglers"])
    assert slow["recoverable_ns"] == pytest.approx(2 * said["recoverable_ns"], rel=0.02)


@pytest.mark.parametrize("gone", [0, 3])
def test_without_a_healthy_rank_the_same_one_is_named(job: Path, tmp_path: Path, gone: int) -> None:
    files = [f for f in job.glob("*.sqlite") if f.stem != f"node{gone}"]
    said = concluded(*files)
    assert (said["id"], said["ranks"], said["stragglers"]) == ("straggler", "1", [1])
