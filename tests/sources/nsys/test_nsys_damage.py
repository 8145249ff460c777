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
from stepscope.sources.nsys.pages import Pages


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


def damaged(export: Path, file: Path, seed: int) -> None:
    """A few bytes of a page's head and cells are overwritten, as by a bad disk or a broken copy."""
    draw = random.Random(seed)
    content = bytearray(export.read_bytes())
    file.write_bytes(content)
    while checked(file):  # what SQLite cannot see, nobody can
        at = 4096 * draw.randrange(1, len(content) // 4096) + draw.randrange(64)
        content[at : at + 4] = draw.randbytes(4)
        file.write_bytes(content)


@pytest.mark.parametrize("seed", range(12))
def test_no_other_figure_without_a_word(export: Path, tmp_path: Path, seed: int) -> None:
    file = tmp_path / "damaged.sqlite"
    damaged(export, file, seed)
    rows, doubts = answer(file)
    assert doubts or rows == answer(export)[0]


@pytest.fixture
def as_if_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Event tables are checked only while they are read, as those of a large export are."""
    monkeypatch.setattr("stepscope.sources.nsys.paged._SMALL_FILE", 0)
    large = {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"}
    monkeypatch.setattr("stepscope.sources.nsys.sqlite.SqliteTables._few", lambda self, table: table not in large)


@pytest.mark.usefixtures("as_if_large")
@pytest.mark.parametrize("seed", range(100, 124))
def test_damage_is_met_while_reading(export: Path, tmp_path: Path, seed: int) -> None:
    file = tmp_path / "damaged.sqlite"
    damaged(export, file, seed)
    rows, doubts = answer(file)
    assert doubts or rows == answer(export)[0]


@pytest.mark.usefixtures("as_if_large")
def test_a_page_in_place_of_another_is_met(export: Path, tmp_path: Path) -> None:
    """Each page is sound, and there are as many rows as before: only their ids tell."""
    file = Path(shutil.copy(export, tmp_path / "damaged.sqlite"))
    with closing(sqlite3.connect(file)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'").fetchone()
    size = int.from_bytes(export.read_bytes()[16:18], "big")
    first, second = Pages(file).leaves(root)[1:3].tolist()
    content = bytearray(file.read_bytes())
    content[(first - 1) * size : first * size] = content[(second - 1) * size : second * size]
    file.write_bytes(content)
    assert "file-damaged" in answer(file)[1]


@pytest.mark.usefixtures("as_if_large")
def test_rows_that_were_deleted_are_no_damage(export: Path, tmp_path: Path) -> None:
    file = Path(shutil.copy(export, tmp_path / "cut.sqlite"))
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid % 7 = 3")
    assert "file-damaged" not in answer(file)[1]


def test_a_large_export_with_gaps_says_so(export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepscope.sources.nsys.paged._MOST_CHECKED", 1000)
    monkeypatch.setattr("stepscope.sources.nsys.paged._SMALL_FILE", 0)
    file = Path(shutil.copy(export, tmp_path / "cut.sqlite"))
    assert "pages-not-checked" not in [n.code for n in stepscope.open(file, cache=False).breakdown().notes]
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid = 100")
    notes = stepscope.open(file, cache=False).breakdown().notes
    assert "pages-not-checked" in [n.code for n in notes]
