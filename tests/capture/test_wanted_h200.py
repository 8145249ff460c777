"""What a command asks to be captured (`--with …`) was captured so on an H200, and the command answers.

Which kernels, frames and shapes must be found is told by the programs (tests/capture/programs), not by the captures.
"""

from __future__ import annotations

import sqlite3
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stepscope import api
from stepscope.cli.main import run
from stepscope.model.capturing import WANTS

DATA = Path(__file__).parents[1] / "data" / "wants"
CAPTURES = {
    "metrics.nsys": ("gpu-metrics", "memory"),
    "host.nsys": ("cpu", "osrt", "python-sampling"),
    "stacks.nsys": ("stacks",),
    "ops.nsys": ("pytorch", "shapes"),
    "all.torch": ("stacks", "shapes", "memory", "pytorch"),
}


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def unpacked(name: str) -> Path:
        folder = tmp_path_factory.mktemp("wants")
        with tarfile.open(DATA / f"{name}.tar.xz") as packed:
            packed.extractall(folder, filter="data")
        return folder / name

    return unpacked


#: There was no network card on that machine, its torch was older than CUPTI's backend, and there has been no GPU since
#: the lock of Python can be recorded.
UNSEEN = {"network", "gil", "graph", "clocks", "pm"}


def test_everything_that_can_be_wanted_was_captured() -> None:
    assert {p.name.removesuffix(".tar.xz") for p in DATA.glob("*.tar.xz")} == set(CAPTURES)
    assert {want for wants in CAPTURES.values() for want in wants} == set(WANTS) - UNSEEN


def test_a_call_with_a_stack_is_one_call(capture: Callable[[str], Path]) -> None:
    """nsys writes two records of it. Each of the 92 kernels and 8 copies has its call; none is lost."""
    profile = api.open(capture("stacks.nsys"), cache=False)
    assert not profile.breakdown().doubts
    assert profile.launches().rows["n"].sum() == 100


@pytest.mark.parametrize("name", CAPTURES)
def test_all_that_was_asked_for_arrived(
    capture: Callable[[str], Path], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["capture", "verify", str(capture(name))]) == 0
    assert "asked for" in (said := capsys.readouterr().out)
    assert all(want in said for want in CAPTURES[name])


def test_sampled_metrics_tell_dense_products_from_the_rest(capture: Callable[[str], Path]) -> None:
    """Products of 8192 x 8192 matrices in bf16 keep the tensor cores busy; adding gradients to weights does not."""
    folder = capture("metrics.nsys")
    kernels = api.open(folder, cache=False).kernels().rows
    products = kernels.filter(pl.col("family") == "gemm")
    assert products["n"].sum() == 11  # four layers forward, eight backward less the input's gradient
    assert products["tensor_active_pct"].min() > 90
    update = kernels.filter(pl.col("family") == "optimizer").sort("total_ns")[-1]
    assert update["tensor_active_pct"].item() < 5
    assert update["dram_read_pct"].item() > products["dram_read_pct"].max()


def test_sampled_clocks_are_those_of_the_samples(capture: Callable[[str], Path]) -> None:
    """The share of the clock that `clock-throttling` tells lies between the slowest and the fastest sample."""
    folder = capture("metrics.nsys")
    (file,) = folder.glob("*.sqlite")
    with sqlite3.connect(file) as db:
        wanted = "SELECT metricId FROM TARGET_INFO_GPU_METRICS WHERE metricName LIKE 'GPC Clock%'"
        samples = db.execute(f"SELECT value FROM GPU_METRICS WHERE metricId IN ({wanted})").fetchall()
    clock = np.array(samples)
    found = api.open(folder, cache=False).diagnose().rows.filter(pl.col("id") == "clock-throttling")
    assert found.height == 1
    said = int(found["evidence"].item().partition("the clock is at ")[2].partition(" %")[0]) / 100
    busy = clock[clock > 0]
    assert busy.min() / busy.max() <= said < 1


def test_stacks_name_the_line_that_launched(capture: Callable[[str], Path]) -> None:
    """Every kernel by its line, by both profilers; torch's own files are the user's where their paths were cut."""
    for name, linear, adam in (
        ("stacks.nsys", r"linear\.py\(\d+\): forward", r"adam\.py"),
        ("all.torch", r"accumulation\.py\(\d+\): <module>", r"accumulation\.py\(18\): <module>"),
    ):
        result = api.open(capture(name), cache=False).source()
        # What adds to a gradient has no line of its own in torch.profiler.
        assert all(total["credited_pct"] > (99 if name == "stacks.nsys" else 90) for total in result.summary["total"])
        of = {phase: rows["function"] for (phase,), rows in result.rows.group_by("phase")}
        assert of["forward"].str.contains(linear).any()
        assert of["optimizer"].str.contains(adam).all(), name


def test_the_launching_thread_while_the_gpu_idles(capture: Callable[[str], Path]) -> None:
    """CPU samples, scheduling and OS calls say what the thread did in the idle time, and their parts are all of it."""
    profile = api.open(capture("host.nsys"), cache=False)
    by_thread = profile.idle(by="thread").rows
    assert {"running", "blocked"} <= set(by_thread["thread"])
    assert by_thread["samples"].fill_null(0).sum() > 0
    assert by_thread["total_ns"].sum() == profile.idle(by="cause").rows["total_ns"].sum()


@pytest.mark.parametrize("name", ["ops.nsys", "all.torch"])
def test_flops_of_the_shapes(capture: Callable[[str], Path], name: str) -> None:
    """Four batches of 16 through layers of 64 x 256 and back: five products each, as the input needs no gradient."""
    found = api.open(capture(name), cache=False).mfu().rows
    assert found["model_flops"].to_list() == [4 * 5 * 2 * 16 * 64 * 256]
