"""Real captures of programs that nobody edited: their steps are the optimizer's, and every command answers about those.

How many batches a step accumulates, and how many steps were asked for, is written in the programs and on the command
line (tests/data/unmodified/README.md), not taken from the captures.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from stepscope import api
from stepscope.cli.main import run

DATA = Path(__file__).parents[1] / "data" / "unmodified"
#: By capture: ranks, steps, and batches of a step.
CAPTURES = {
    "accumulation.nsys": (1, 3, 4),
    "accumulation.torch": (1, 3, 4),
    "lightning.nsys": (1, 3, 2),
    "hf1.nsys": (1, 1, 2),
    "hf1.torch": (1, 1, 2),
    "hf4.nsys": (4, 1, 2),
}


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def unpacked(name: str) -> Path:
        folder = tmp_path_factory.mktemp("unmodified")
        with tarfile.open(DATA / f"{name}.tar.xz") as packed:
            packed.extractall(folder, filter="data")
        return folder / name

    return unpacked


def test_each_has_a_line() -> None:
    assert {p.name.removesuffix(".tar.xz") for p in DATA.glob("*.tar.xz")} == set(CAPTURES)


@pytest.mark.parametrize("name", CAPTURES)
def test_steps_are_those_of_the_optimizer(capture: Callable[[str], Path], name: str) -> None:
    ranks, steps, batches = CAPTURES[name]
    profile = api.open(capture(name), cache=False)
    found = profile.iterations().rows
    assert found.group_by("rank").len()["len"].to_list() == [steps] * ranks
    ranges = profile.ranges.with_columns(text=profile.names.gather(profile.ranges["name"]))
    counted = {
        text: ranges.filter(pl.col("text") == text).group_by("rank").len()["len"].to_list()
        for text in ("data", "forward", "backward", "optimizer")
    }
    each = [steps * batches] * ranks
    assert counted == {"data": each, "forward": each, "backward": each, "optimizer": [steps] * ranks}


@pytest.mark.parametrize("name", CAPTURES)
def test_they_verify_and_answer_per_step(
    capture: Callable[[str], Path], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(capture(name))
    assert run(["capture", "verify", folder]) == 0
    capsys.readouterr()
    assert run(["diagnose", folder, "--no-cache"]) == 0
    said = capsys.readouterr().out
    assert " ms step" in said and "capture)" not in said
    page = tmp_path / "report.html"
    assert run(["report", folder, "-o", str(page), "--no-cache"]) == 0
    assert page.stat().st_size > 10_000
