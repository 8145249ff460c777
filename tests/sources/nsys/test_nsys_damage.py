"""Damaged pages of an export: SQLite reads on as if nothing were, so answers begin with what its check says."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import stepscope
from stepscope.errors import StepscopeError
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage")
    simulate_to(Scenario(pp=2, ep=1, layers=4, micro_batches=4, steps=2), folder, ("nsys",))
    (file,) = folder.glob("*.sqlite")
    return file


def checked(file: Path) -> bool:
    """Whether SQLite's own, longer check finds the file sound."""
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as db:
            return [row[0] for row in db.execute("PRAGMA integrity_check")] == ["ok"]
    except (sqlite3.Error, UnicodeDecodeError):
        return False


def answer(file: Path) -> tuple[str, list[str]]:
    """The rows of an answer as text, and the codes of its doubts; the error where there is none."""
    try:
        result = stepscope.open(file, cache=False).breakdown()
    except StepscopeError as error:
        return str(error), ["refused"]
    return result.rows.write_csv(), [n.code for n in result.doubts]


def test_a_sound_export_is_not_doubted(export: Path) -> None:
    assert answer(export)[1] == []


@pytest.mark.parametrize("seed", range(12))
def test_no_other_figure_without_a_word(export: Path, tmp_path: Path, seed: int) -> None:
    """A few bytes of a page's head and cells are overwritten, as by a bad disk or a broken copy."""
    draw = random.Random(seed)
    file = Path(shutil.copy(export, tmp_path / "damaged.sqlite"))
    content = bytearray(file.read_bytes())
    while checked(file):  # what SQLite cannot see, nobody can
        at = 4096 * draw.randrange(1, len(content) // 4096) + draw.randrange(64)
        content[at : at + 4] = draw.randbytes(4)
        file.write_bytes(content)
    rows, doubts = answer(file)
    assert doubts or rows == answer(export)[0]


def test_a_large_export_says_that_it_was_not_checked(export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepscope.sources.nsys._MOST_CHECKED", 1000)
    notes = stepscope.open(export, cache=False).breakdown().notes
    assert "pages-not-checked" in [n.code for n in notes]
