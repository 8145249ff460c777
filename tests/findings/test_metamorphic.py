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


@pytest.fixture(scope="module")
def before(job: Path) -> dict[str, Any]:
    """What is concluded of the job as it is."""
    return concluded(*job.glob("*.sqlite"))


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


def test_the_truth(before: dict[str, Any]) -> None:
    said = before
    assert (said["id"], said["ranks"], said["stragglers"]) == ("straggler", "1", [1])
    assert "launches are 1.40 times as large" in said["title"]


def test_files_in_another_order_say_the_same(job: Path) -> None:
    files = sorted(job.glob("*.sqlite"))
    assert concluded(*files) == concluded(*reversed(files))


def test_a_later_capture_says_the_same(job: Path, tmp_path: Path, before: dict[str, Any]) -> None:
    assert concluded(*changed(job, tmp_path, *in_time("{0} + 7000000123"))) == before


def test_ranges_of_other_names_say_the_same_of_ranks(job: Path, tmp_path: Path, before: dict[str, Any]) -> None:
    rename = "update NVTX_EVENTS set text = replace(text, 'forward mb', 'fwd') where text like 'forward%'"
    assert concluded(*changed(job, tmp_path, rename)) == before


def test_twice_as_slow_loses_twice_as_much(job: Path, tmp_path: Path, before: dict[str, Any]) -> None:
    slow, said = concluded(*changed(job, tmp_path, *in_time("2 * {0}"))), before
    assert (slow["id"], slow["ranks"], slow["stragglers"]) == (said["id"], said["ranks"], said["stragglers"])
    assert slow["recoverable_ns"] == pytest.approx(2 * said["recoverable_ns"], rel=0.02)


@pytest.mark.parametrize("gone", [0, 3])
def test_without_a_healthy_rank_the_same_one_is_named(job: Path, tmp_path: Path, gone: int) -> None:
    files = [f for f in job.glob("*.sqlite") if f.stem != f"node{gone}"]
    said = concluded(*files)
    assert (said["id"], said["ranks"], said["stragglers"]) == ("straggler", "1", [1])


def test_without_the_straggler_nobody_is_blamed(job: Path) -> None:
    """The others still wait for it: who comes last among them is not to blame."""
    profile = api.open(*(str(f) for f in sorted(job.glob("*.sqlite")) if f.stem != "node1"), cache=False)
    assert api.analyse(profile, "diagnose", only=("straggler", "compute-imbalance", "late-node")).rows.height == 0
    assert api.analyse(profile, "stragglers").summary["stragglers"] == []


def _relabel(old: int, new: int, size: int = 4) -> str:
    return (
        f"update NVTX_EVENTS set text = replace(replace(text, 'rank={old};', 'rank={new};'), 'dp={old}/4', "
        f"'dp={new}/{size}') where text like 'rank={old};%'"
    )


def test_the_finding_follows_the_number_of_its_rank(job: Path, tmp_path: Path, before: dict[str, Any]) -> None:
    files = changed(job, tmp_path, _relabel(1, 9), _relabel(3, 1), _relabel(9, 3))
    said = concluded(*files)
    assert (said["ranks"], said["stragglers"]) == ("3", [3])
    assert said["recoverable_ns"] == pytest.approx(before["recoverable_ns"], rel=0.001)


@pytest.mark.slow
def test_one_more_healthy_rank_changes_nothing(job: Path, tmp_path: Path, before: dict[str, Any]) -> None:
    files = changed(job, tmp_path, *(_relabel(r, r, 5) for r in range(4)))
    twin = Path(shutil.copy(next(f for f in files if f.stem == "node0"), tmp_path / "node4.sqlite"))
    with closing(sqlite3.connect(twin)) as db, db:
        db.execute("update NVTX_EVENTS set text = replace(replace(text, 'rank=0;', 'rank=4;'), 'dp=0/5', 'dp=4/5')")
    said = concluded(*files, twin)
    assert (said["id"], said["ranks"], said["stragglers"]) == ("straggler", "1", [1])
    assert said["recoverable_ns"] == pytest.approx(before["recoverable_ns"], rel=0.02)


@pytest.mark.slow
def test_kernels_of_other_names_say_the_same(job: Path, tmp_path: Path, before: dict[str, Any]) -> None:
    """Like kernels are compared by their names, whatever those are."""
    rename = "update StringIds set value = 'k' || id where value like 'void %' or value like 'nvjet%'"
    said = concluded(*changed(job, tmp_path, rename))
    assert {k: v for k, v in said.items() if k != "title"} == {k: v for k, v in before.items() if k != "title"}


@pytest.mark.slow
def test_a_file_for_each_process_says_the_same(tmp_path: Path) -> None:
    """One node records all its processes into one file; split, they are as many files of the same clock."""
    scenario = Scenario(
        **{**SHAPE, "nodes": 1}, layers=4, micro_batches=2, steps=2, seed=3, faults=("larger-batch:rank=1,factor=1.4",)
    )
    with written(scenario) as (_, folder):
        (whole,) = folder.glob("*.sqlite")
        before = concluded(whole)
        pids = _processes(whole)
        assert len(pids) == 4
        said = concluded(*(_alone(whole, tmp_path / f"part{n}.sqlite", pid) for n, pid in enumerate(pids)))
    assert (said["id"], said["ranks"], said["stragglers"]) == ("straggler", "1", [1])
    assert said["recoverable_ns"] == pytest.approx(before["recoverable_ns"], rel=0.01)


#: In nsys' ids of threads the lowest 24 bits are the thread's: what is above is of its process.
_PROCESS = ~((1 << 24) - 1)


def _processes(file: Path) -> list[int]:
    with closing(sqlite3.connect(file)) as db:
        return [pid for (pid,) in db.execute("select distinct globalPid from CUPTI_ACTIVITY_KIND_KERNEL order by 1")]


def _alone(file: Path, copy: Path, pid: int) -> Path:
    """The records of one process."""
    shutil.copy(file, copy)
    with closing(sqlite3.connect(copy)) as db, db:
        tables = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
        for table in tables:
            columns = {row[1] for row in db.execute(f"pragma table_info({table})")}
            for column in ("globalPid", "globalTid"):
                if column in columns:
                    db.execute(f"delete from {table} where ({column} & {_PROCESS}) != ({pid} & {_PROCESS})")
                    break
    return copy
