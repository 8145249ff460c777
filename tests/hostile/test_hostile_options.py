"""Command lines that broke: numbers and names that no option expects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hostile_inputs import Good, good

from stepscope.cli.main import run


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Good:
    return good(tmp_path_factory.mktemp("options"))


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (["kernels", "--top", "99999999999999999999"], (0, 2)),
        (["breakdown", "--rank", "0" * 100_000], (0, 2)),
        (["breakdown", "--rank", "9" * 5_000], (2,)),
        (["breakdown", "--index", "9" * 5_000], (2,)),
        (["breakdown", "--start", "9" * 5_000, "--end", "1"], (2,)),
        (["breakdown", "--start", "nan", "--end", "inf"], (2,)),
        (["breakdown", "--anchor", "(" * 5_000], (2,)),
        (["info", "--taxonomy", "/dev/null/x"], (2,)),
    ],
)
def test_one_line(sound: Good, options: list[str], status: tuple[int, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([options[0], str(sound.export), *options[1:]]) in status
    said = capsys.readouterr().err
    assert said.count("\n") <= 1 and "this is a bug" not in said


def test_a_part_that_begins_at_zero(sound: Good, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    assert run(["report", str(sound.export), "--start", "0", "--end", "60000000", "-o", str(page)]) == 0
    assert page.stat().st_size


@pytest.mark.slow
def test_names_that_are_no_text(sound: Good, tmp_path: Path) -> None:
    """A file of any name is written; a cache that cannot be is done without."""
    command = [sys.executable, "-m", "stepscope", "report", str(sound.export), "-o", b"\xff.html"]
    env = {**os.environ, "STEPSCOPE_CACHE_DIR": "x" * 5_000}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [os.fsencode(path.name) for path in tmp_path.iterdir()] == [b"\xff.html"]
