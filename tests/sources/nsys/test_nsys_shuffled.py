"""The order of records in an export says nothing: shuffled, as nsys 2025.6 and later may write them, all answers stay.

Two records that start and end at the same nanosecond keep the order of the file. That no answer hangs on it is tried
with clocks that tick more slowly than any profiler's. What a record's own number is (`row` in detailed tables, RangeId
in the traces of `nsys stats`) changes with the file, of course.
"""

from __future__ import annotations

import json
import lzma
import random
import shutil
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope import api, questions
from stepscope.api.options import choices
from stepscope.errors import StepscopeError
from stepscope.render.json import to_json
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to
from stepscope.sources.nsys import open_sqlite

DATA = Path(__file__).parents[2] / "data" / "h200"
#: Small jobs of both kinds of trainers: those that mark chunks and those that mark steps.
JOBS: dict[str, dict[str, Any]] = {
    "dualpipev": {"schedule": "dualpipev", "pp": 2, "ep": 1, "layers": 4, "micro_batches": 4, "steps": 1},
    "ddp": {"schedule": "ddp", "pp": 1, "ep": 1, "dp": 2, "layers": 2, "micro_batches": 1, "steps": 2},
}


def shuffled(source: Path, target: Path, seed: int) -> Path:
    """The same tables and records, all in another order."""
    order = random.Random(seed)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    with closing(sqlite3.connect(target)) as file:
        file.create_function("any_number", 0, order.random)
        file.execute("ATTACH ? AS old", (str(source),))
        tables = (
            "SELECT name, sql FROM old.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
        )
        there = file.execute(tables).fetchall()
        order.shuffle(there)
        for name, definition in there:
            file.execute(definition)
            file.execute(f'INSERT INTO main."{name}" SELECT * FROM old."{name}" ORDER BY any_number()')
        file.commit()
    return target


def ticking(path: Path, tick_ns: int) -> Path:
    """The export of a clock that tells only multiples of `tick_ns`: many records begin, or end, together."""
    with closing(sqlite3.connect(path)) as file:
        tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            columns = {row[1] for row in file.execute(f'PRAGMA table_info("{table}")')}
            for column in columns & {"start", "end", "timestamp"}:
                up = tick_ns - 1 if column == "end" else 0  # nothing becomes shorter than a tick
                file.execute(
                    f'UPDATE "{table}" SET "{column}" = ("{column}" + {up}) / {tick_ns} * {tick_ns} '
                    f"WHERE typeof(\"{column}\") = 'integer'"
                )
        file.commit()
    return path


@cache
def answers(path: Path, seed: int | None, variants: bool) -> dict[str, Any]:
    """What every question answers, by its name and what a row is. `seed` is what the file was shuffled with."""
    profile = api.open(path, cache=False)
    found: dict[str, Any] = {}
    for name in questions.names():
        option = next((o for o in questions.get(name).options if o.name == "by"), None)
        others = [c for c in choices(option.type) or () if c != option.default] if option and variants else []
        for options in ({}, *({"by": by} for by in others)):
            try:
                answer: Any = json.loads(
                    to_json(api.analyse(profile, name, **options)).replace(str(path).encode(), b"PROFILE")
                )
                del answer["profile"]
            except StepscopeError as error:
                answer = str(error)
            found[f"{name} {options}"] = answer
    return found


def assert_same(path: Path, other: Path, seed: int, *, variants: bool) -> None:
    before, after = answers(path, None, variants), answers(other, seed, variants)
    assert sum(isinstance(answer, dict) for answer in before.values()) > 10
    assert [key for key in before if before[key] != after[key]] == []


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Path]:
    """By job and tick of its clock."""
    folder = tmp_path_factory.mktemp("exports")
    made = {}
    for name, job in JOBS.items():
        for tick in (1, 32, 200):
            simulate_to(Scenario(**job), folder / f"{name}{tick}", ("nsys",))
            made[name, tick] = ticking(folder / f"{name}{tick}" / "node0.sqlite", tick)
    return made


@pytest.mark.slow
@settings(max_examples=4, derandomize=True, suppress_health_check=list(HealthCheck), deadline=None)
@given(seed=st.integers(0, 2**32), job=st.sampled_from(sorted(JOBS)), tick=st.sampled_from([1, 32, 200]))
def test_every_answer_stays(exports: dict[tuple[str, int], Path], seed: int, job: str, tick: int) -> None:
    path = exports[job, tick]
    assert_same(path, shuffled(path, path.parent / "other" / path.name, seed), seed, variants=True)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variants"), [("moe4mps/overlapped", False), ("train/eager", True)])
def test_real_traces(name: str, variants: bool, tmp_path: Path) -> None:
    path = tmp_path / "trace.sqlite"
    path.write_bytes(lzma.decompress((DATA / f"{name}.sqlite.xz").read_bytes()))
    other = shuffled(path, tmp_path / "other" / path.name, 7)
    assert_same(path, other, 7, variants=variants)
    changed = api.compare([path], [other], cache=False, whole=True).rows
    assert changed["diff_ns"].to_list() == [0] * changed.height


@pytest.mark.slow
def test_a_parquet_export(shared: Path, tmp_path: Path) -> None:
    source = shared / "h200" / "payloads" / "overlapped_pqtdir"
    other = tmp_path / source.name
    other.mkdir()
    for n, file in enumerate(sorted(source.glob("*.parquet"))):
        try:
            table = pl.read_parquet(file)
        except pl.exceptions.ComputeError:  # a text in it is not UTF-8, which Polars could not write again
            shutil.copy(file, other)
            continue
        table.sample(fraction=1, shuffle=True, seed=n).write_parquet(other / file.name)
    assert_same(source, other, 0, variants=False)


@pytest.mark.slow
def test_the_test_sees_what_changes(exports: dict[tuple[str, int], Path], tmp_path: Path) -> None:
    """Shuffling does reorder, and another time of one kernel is seen."""
    path = exports["ddp", 1]
    other = shuffled(path, tmp_path / path.name, 1)
    with closing(sqlite3.connect(path)) as first, closing(sqlite3.connect(other)) as second:
        starts = "SELECT start FROM CUPTI_ACTIVITY_KIND_KERNEL"
        rows = [[row for (row,) in file.execute(starts)] for file in (first, second)]
        assert rows[0] != rows[1] and sorted(rows[0]) == sorted(rows[1])
        second.execute('UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = "end" + 1000 WHERE rowid = 5')
        second.commit()
    with pytest.raises(AssertionError, match="breakdown"):
        assert_same(path, other, 1, variants=False)


def test_launches_are_those_of_the_ops_whatever_was_read_before(tmp_path: Path) -> None:
    """Once the ops are in order, their grids are not sorted again: they must still be theirs."""
    simulate_to(Scenario(**JOBS["dualpipev"]), tmp_path / "job", ("nsys",))
    (export,) = (tmp_path / "job").glob("*.sqlite")
    path = shuffled(export, tmp_path / "shuffled.sqlite", 7)
    alone, behind = open_sqlite(path), open_sqlite(path)
    behind.read("ops")
    expected, frame = (source.read("ops", "launch").frame for source in (alone, behind))
    assert frame["grid_x"].n_unique() > 2
    assert frame.equals(expected)
