"""Damaged inputs: only answers and errors in one line come out, and no figure that cannot be.

A part of what `make fuzz` does, by the same seeds every time; and, in order, values of every type in every column.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from ask_mutant import ask_all
from mutate_values import CELLS
from one_mutant import Factory

from stepscope import questions

#: Mutants of a test, and tests: a mutant takes about half a second.
_EACH, _BATCHES = 10, 10
#: What each mutant is asked, besides some of the others in turn.
_ALWAYS = ["info", "breakdown", "diagnose"]
_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
    "NVTX_EVENTS",
    "StringIds",
    "TARGET_INFO_CUDA_DEVICE",
    "ANALYSIS_DETAILS",
)


@pytest.fixture(scope="module")
def factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Factory]:
    folder = tmp_path_factory.mktemp("mutants")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPSCOPE_CACHE_DIR", str(folder / "cache"))
        yield Factory(folder)


@pytest.mark.parametrize("batch", range(_BATCHES))
def test_mutants(batch: int, factory: Factory) -> None:
    for seed in range(batch * _EACH, (batch + 1) * _EACH):
        r = random.Random(seed)
        asked = [*_ALWAYS, *random.Random(seed).sample([*questions.names(), "stats", "report"], 3)]
        kind, said, outcome = factory.run(r, asked)
        assert not outcome.failures, f"seed {seed}, {kind} {said}"


@pytest.mark.parametrize("table", _TABLES)
def test_values_of_every_type_in_every_column(table: str, factory: Factory, tmp_path: Path) -> None:
    """Every value in turn, over the rows of a table; one column after the other."""
    base = factory.good.sqlite[0]
    with closing(sqlite3.connect(base)) as db:
        columns = [name for (name,) in db.execute(f"SELECT name FROM pragma_table_info('{table}')")]
        rows = [at for (at,) in db.execute(f'SELECT rowid FROM "{table}"')]
    assert columns and rows
    for number, column in enumerate(columns):
        path = tmp_path / f"{column}.sqlite"
        path.write_bytes(base.read_bytes())
        with closing(sqlite3.connect(path)) as db:
            values = [(CELLS[i % len(CELLS)], at) for i, at in enumerate(rows) if i % 3 == 0]
            db.executemany(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', values)
            db.commit()
        names = questions.names()
        outcome = ask_all([path], ["breakdown", "stragglers", names[number % len(names)]])
        assert not outcome.failures, f"{table}.{column}"
        path.unlink()
