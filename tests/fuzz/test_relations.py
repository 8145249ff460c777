"""Metamorphic relations: what a change of the file does to every answer is known beforehand."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from relations import RELATIONS, Relation, answers, changed, expected, violations

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


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda r: r.name)
def test_answers_become_what_is_predicted(
    relation: Relation, export: Path, before: dict[str, Any], tmp_path: Path
) -> None:
    assert violations(relation, before, changed(relation, export, tmp_path)) == []


def test_a_prediction_can_be_wrong(export: Path, before: dict[str, Any], tmp_path: Path) -> None:
    """The comparison sees a difference: shifted times that were not predicted."""
    shift = RELATIONS[0]
    silent = Relation(shift.name, shift.change)
    assert {"timeline", "window"} <= set(violations(silent, before, changed(silent, export, tmp_path)))


def _of_rank(source: Path, path: Path, rank: int) -> Path:
    """The same export with one process only."""
    path.write_bytes(source.read_bytes())
    with closing(sqlite3.connect(path)) as db:
        pids = [p for (p,) in db.execute("SELECT DISTINCT globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY 1")]
        tables = [n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            columns = [c for (c,) in db.execute(f"SELECT name FROM pragma_table_info('{table}')")]
            for column in ("globalPid", "globalTid"):
                if column in columns and table not in ("DIAGNOSTIC_EVENT",):
                    db.execute(f'DELETE FROM "{table}" WHERE "{column}" >> 24 != ?', [pids[rank] >> 24])
        db.commit()
    return path


def test_files_may_be_split(export: Path, before: dict[str, Any], tmp_path: Path) -> None:
    """A file per rank instead of one of the node: every row is the same."""
    files = [_of_rank(export, tmp_path / f"part{rank}.sqlite", rank) for rank in (0, 1)]
    profile = api.open(*files, cache=False)
    for name in ("breakdown", "overlap", "idle", "kernels", "collectives", "stragglers", "critical-path", "iterations"):
        rows = api.analyse(profile, name).rows.to_dicts()
        assert expected(rows, lambda _, v: v) == expected(before[name]["rows"], lambda _, v: v), name


def test_windows_add_up(export: Path) -> None:
    profile = api.open(export, cache=False)
    lo, hi = profile.extents()[0]
    cuts = [lo, lo + (hi - lo) // 7, lo + (hi - lo) // 2, hi - 1000, hi]
    whole = api.analyse(profile, "breakdown", start=lo, end=hi).rows
    parts = [api.analyse(profile, "breakdown", start=a, end=b).rows for a, b in pairwise(cuts)]
    for part in _PARTS:
        assert sum(rows[part] for rows in parts).to_list() == whole[part].to_list(), part  # type: ignore[union-attr]


def test_time_that_is_inserted_is_idle(export: Path, tmp_path: Path) -> None:
    """Everything from the end of the first step on is later: the capture idles so much longer, and that is all."""
    profile = api.open(export, cache=False)
    first = api.analyse(profile, "window", index=0).rows
    at, gap = int(first["gpu_end_ns"].max()) + 1, 5_000_000  # type: ignore[arg-type]
    path = tmp_path / export.name
    path.write_bytes(export.read_bytes())
    with closing(sqlite3.connect(path)) as db:
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY"):  # the job has no memsets
            for column in ("end", "start"):
                db.execute(f"UPDATE {table} SET {column} = {column} + {gap} WHERE start >= {at}")
        db.commit()
    later = api.open(path, cache=False)
    (begin, end), until = profile.extents()[0], later.extents()[0][1]
    was = api.analyse(profile, "breakdown", start=begin, end=end).rows
    now = api.analyse(later, "breakdown", start=begin, end=until).rows
    for part in _PARTS:
        grown = gap if part in ("window_ns", "idle_ns") else 0
        assert (now[part] - was[part]).to_list() == [grown] * was.height, part


def test_an_export_that_is_cut_to_a_step_has_that_step(export: Path, tmp_path: Path) -> None:
    profile = api.open(export, cache=False)
    profile.export(tmp_path / "step.parquet", step=True, index=1)
    cut = api.open(tmp_path / "step.parquet", cache=False)
    whole = api.analyse(profile, "breakdown", index=1).rows
    lo = api.analyse(profile, "window", step=True, index=1).rows
    spans = dict(zip(lo["rank"], zip(lo["gpu_start_ns"], lo["gpu_end_ns"], strict=True), strict=True))
    for rank, (start, end) in spans.items():
        rows = api.analyse(cut, "breakdown", rank=rank, start=start, end=end).rows
        assert [rows[p][0] for p in _PARTS] == [whole.filter(whole["rank"] == rank)[p][0] for p in _PARTS]


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
