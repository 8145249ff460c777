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

from marks import slow_unless
from stepscope import api
from stepscope.cli.main import run

DATA = Path(__file__).parents[1] / "data" / "unmodified"
#: By capture: ranks, steps, and batches of a step.
CAPTURES = {
    "accumulation.nsys": (1, 3, 4),
    "accumulation.torch": (1, 3, 4),
    "lightning.nsys": (1, 3, 2),
    "lightning.torch": (1, 3, 2),
    "modules.nsys": (1, 2, 4),
    "modules.torch": (1, 2, 4),
    "hf1.nsys": (1, 1, 2),
    "hf1.torch": (1, 1, 2),
    "hf4.nsys": (4, 1, 2),
    "hf4.torch": (4, 1, 2),
}
#: Without torch there is no optimizer to hook: by capture, what started nsys.
WITHOUT_TORCH = {"jax_time.nsys": "time", "jax_none.nsys": "none", "cupy_range.nsys": "nvtx"}


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def unpacked(name: str) -> Path:
        folder = tmp_path_factory.mktemp("unmodified")
        with tarfile.open(DATA / f"{name}.tar.xz") as packed:
            packed.extractall(folder, filter="data")
        return folder / name

    return unpacked


def test_each_has_a_line() -> None:
    assert {p.name.removesuffix(".tar.xz") for p in DATA.glob("*.tar.xz")} == {*CAPTURES, *WITHOUT_TORCH}


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


@pytest.mark.parametrize("name", slow_unless(("accumulation.torch", "lightning.nsys").__contains__, CAPTURES))
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


@pytest.mark.parametrize("name", ["modules.nsys", "modules.torch"])
def test_modules_are_ranges_within_forward(capture: Callable[[str], Path], name: str) -> None:
    """`--ranges modules=2` of a Sequential of three: each module once for each of the four batches of a step."""
    rows = api.open(capture(name), cache=False).nvtx().rows
    found = {path.rpartition(" > ")[2]: n for path, n in rows.select("path", "n").iter_rows() if "forward > " in path}
    assert found == {"0": 4, "1": 4, "2": 4}


@pytest.mark.parametrize("name", WITHOUT_TORCH)
def test_what_a_trigger_captured_verifies(capture: Callable[[str], Path], name: str) -> None:
    assert run(["capture", "verify", str(capture(name))]) == 0


def test_400_ms_of_jax_are_steps_of_its_jitted_function(capture: Callable[[str], Path]) -> None:
    """`--trigger time=12s+400ms`, of a step that takes 22 ms."""
    profile = api.open(capture("jax_time.nsys"), cache=False)
    steps = profile.iterations().rows
    assert steps["label"].str.contains("jit_train_step").all()
    assert 15 <= steps.height <= 19
    kernels = profile.ops.filter(pl.col("end_ns") <= pl.col("start_ns").min() + 450_000_000)
    assert kernels.height == profile.ops.height


def test_a_range_of_cupy_is_all_that_was_captured(capture: Callable[[str], Path]) -> None:
    """`--trigger nvtx=measured`: five steps lie in the range, three rounds before it."""
    profile = api.open(capture("cupy_range.nsys"), cache=False)
    assert profile.iterations().rows["label"].to_list() == [f"step {i}" for i in range(5)]
    products = profile.names.str.contains("gemm").to_numpy()[profile.ops["name"].to_numpy()]
    assert int(products.sum()) == 5


def test_a_capture_from_start_to_end_of_jax_is_no_step(
    capture: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diagnose", str(capture("jax_none.nsys")), "--no-cache"]) == 0
    assert "of the capture" in capsys.readouterr().out
