"""Programs that no detector of the run was made with (reliability/new_programs.py): the cause first, and its cost."""

from __future__ import annotations

from random import Random

import pytest

from reliability import new_programs

#: `new_programs.py` is run with other seeds by hand.
SEED = 31_000
PROGRAMS = new_programs.programs(Random(SEED))


def test_every_row_of_the_catalogue_has_two() -> None:
    rows = [program.row for program in PROGRAMS]
    assert all(rows.count(f"C{k}") >= 2 for k in range(1, 9))


@pytest.mark.slow
@pytest.mark.parametrize("k", range(len(PROGRAMS)), ids=[f"{p.row} {p.name}" for p in PROGRAMS])
def test_the_cause_is_named_first(k: int) -> None:
    said, wrong = new_programs.tried(SEED + k, PROGRAMS[k])
    assert wrong is None, said
