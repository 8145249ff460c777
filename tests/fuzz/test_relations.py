"""Metamorphic relations: what a change of the file does to every answer is known beforehand."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from relation_answers import answers
from relation_windows import cut, inserted, split, windows_add_up
from relations import RELATIONS, Relation, changed, violations

from stepscope import api
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

_PARTS = ("window_ns", "compute_ns", "comm_exposed_ns", "copy_exposed_ns", "idle_ns", "comm_hidden_ns")


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("relations")
    simulate_to(Scenario(schedule="1f1b", pp=2, ep=1, dp=1, layers=2, micro_batches=2, steps=3), folder / "job")
    return folder / "job" / "node0.sqlite"


@pytest.fixture(scope="module")
def before(export: Path) -> dict[str, Any]:
    return answers(export)


#: Enough to see that a command's answer depends on what it must not.
_QUICK = {"shift all times", "permute rows"}


@pytest.mark.parametrize(
    "relation",
    [pytest.param(r, id=r.name, marks=() if r.name in _QUICK else pytest.mark.slow) for r in RELATIONS],
)
def test_answers_become_what_is_predicted(
    relation: Relation, export: Path, before: dict[str, Any], tmp_path: Path
) -> None:
    assert violations(relation, before, changed(relation, export, tmp_path)) == []


def test_a_prediction_can_be_wrong(export: Path, before: dict[str, Any], tmp_path: Path) -> None:
    """The comparison sees a difference: shifted times that were not predicted."""
    shift = RELATIONS[0]
    silent = Relation(shift.name, shift.change)
    assert {"timeline", "window"} <= set(violations(silent, before, changed(silent, export, tmp_path)))


@pytest.mark.slow
def test_files_may_be_split(export: Path, before: dict[str, Any], tmp_path: Path) -> None:
    """A file per rank instead of one of the node: every row of every command is the same."""
    compared, failed = split(export, tmp_path, before)
    assert compared > 60 and failed == []


def test_windows_add_up(export: Path) -> None:
    assert windows_add_up(export) == (3, [])


def test_time_that_is_inserted_is_idle(export: Path, tmp_path: Path) -> None:
    assert inserted(export, tmp_path) == (3, [])


def test_an_export_that_is_cut_to_a_step_has_that_step(export: Path, tmp_path: Path) -> None:
    assert cut(export, tmp_path) == (5, [])


def test_a_record_that_cannot_be_is_counted_with_an_example(export: Path, tmp_path: Path) -> None:
    """One kernel of 3 s among steps of some milliseconds: left out, which `info` and every answer say."""
    path = tmp_path / export.name
    path.write_bytes(export.read_bytes())
    with closing(sqlite3.connect(path)) as db:
        rows = "SELECT rowid FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start LIMIT 1 OFFSET 20"
        db.execute(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start + 3000000000 WHERE rowid = ({rows})")
        db.commit()
    profile = api.open(path, cache=False)
    for name in ("info", "breakdown", "idle"):
        told = [str(n) for n in api.analyse(profile, name).notes if n.code == "rows-impossible"]
        assert len(told) == 1 and "left out 1 row" in told[0] and "3 s from" in told[0], name


def test_a_cut_of_samples_that_have_no_end(tmp_path: Path) -> None:
    """Counters have a start only: a window of them can be exported."""
    from fake import FakeSource, call, op
    from stepscope.api.profile import Profile

    tables = {
        "ops": [op(10, 20, call=1)],
        "calls": [call(1, 2, 1)],
        "counters": [{"device": 0, "name": "memory", "start_ns": t, "value": 1.0} for t in (5, 15, 5000)],
    }
    profile = Profile([FakeSource(tables)])
    profile.export(tmp_path / "cut.parquet", start=10, end=20)
    assert api.open(tmp_path / "cut.parquet", cache=False).counters["start_ns"].to_list() == [15]
