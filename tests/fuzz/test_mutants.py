"""Damaged inputs: only answers and errors in one line come out, no figure that cannot be, none changed in silence.

A part of what `make fuzz` does, by the same seeds every time; and, in order, values of every type in every column.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import good_inputs
import mutants
import pytest
from ask_mutant import Outcome, ask_profile
from make_mutant import KINDS, Factory, answers_of
from mutate_values import CELLS

from marks import slow_unless
from stepscope import api, questions
from stepscope.api.options import choices

#: Inputs of each kind: one takes 2 to 90 ms.
_EACH = 8
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
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[good_inputs.Inputs]:
    folder = tmp_path_factory.mktemp("mutants")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPSCOPE_CACHE_DIR", str(folder / "cache"))
        yield good_inputs.make(folder / "good")


@pytest.mark.slow
def test_inputs_of_every_kind_by_number(inputs: good_inputs.Inputs, tmp_path: Path) -> None:
    """The good inputs answer as they should, or `answers_of` fails; then the damaged ones."""
    answers = answers_of(inputs, least=4)
    rare = ("ncu-rep",)  # a process of its own for each: left to `make fuzz`
    for kind in (k for k in KINDS if k not in rare):
        factory = Factory(inputs, tmp_path / kind, answers, [kind])
        for seed in range(_EACH):
            mutant, outcome = factory.run(random.Random(f"{kind} {seed}"))
            assert not outcome.failures, f"{kind} {seed}: {mutant.said}"


def test_the_command_line_names_every_kind() -> None:
    """It must not import what imports Polars, so that it has a list of its own."""
    assert set(mutants.KINDS) == set(KINDS)


@pytest.mark.parametrize("table", slow_unless("StringIds".__eq__, _TABLES))
@pytest.mark.slow
def test_values_of_every_type_in_every_column(table: str, inputs: good_inputs.Inputs, tmp_path: Path) -> None:
    """Every value in turn, over the rows of a table; one column after the other."""
    base = inputs.one("sqlite", "mesh").paths[0]
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
        outcome = Outcome()
        ask_profile(outcome, (path,), [("breakdown", {}), ("stragglers", {}), (names[number % len(names)], {})])
        assert not outcome.failures, f"{table}.{column}"
        path.unlink()


@pytest.mark.slow
def test_good_inputs_under_every_option(inputs: good_inputs.Inputs) -> None:
    """Figures of good inputs are possible however a question is asked: else the oracle is wrong, or the answer."""
    for kind, name in (("sqlite", "one"), ("snapshot", "retry"), ("ncu-csv", "raw"), ("log", "run")):
        profile = api.open(*inputs.one(kind, name).paths, cache=False)
        for question in questions.names():
            for option in questions.get(question).options:
                for choice in (True,) if option.type is bool else choices(option.type) or ():
                    outcome = Outcome()
                    outcome.ask(question, partial(api.analyse, profile, question, **{option.name: choice}))
                    assert not outcome.failures, (name, question, option.name, choice)
