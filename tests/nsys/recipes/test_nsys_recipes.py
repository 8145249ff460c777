"""Equal to what `nsys recipe` 2023.4.4 wrote for our own traces, cell by cell.

nsys takes a file for a rank. `train` is two files of one process each; `payloads` is one file of four processes, so
that nsys's figures for its only rank are ours for all ranks.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from recipe_data import GOLDEN

from stepscope.nsys import recipes
from stepscope.nsys.recipes import diff

FILES = {"h200_train_eager": 0, "h200_train_slow_dataloader": 1}
SUMS = ("cuda_api_sum", "cuda_gpu_kern_sum", "cuda_gpu_mem_size_sum", "cuda_gpu_mem_time_sum")
TEXTS = ("nvtx_sum", "nvtx_gpu_proj_sum")
NCCL = ("nccl_sum", "nccl_gpu_proj_sum")
#: What nsys merges from the ranks' own figures, and calls approximate in some of its recipes; ours are exact.
APPROXIMATE = ("q1_", "med_", "q3_", "std_")


def golden(name: str, recipe: str, file: str) -> pl.DataFrame:
    frame = pl.read_csv(GOLDEN / f"{name}.{recipe}.{file}.csv.gz", infer_schema_length=None)
    ours = {nsys: own for own, nsys in recipes.find(recipe.removesuffix(".cum")).headers.items() if own != "rank"}
    return frame.rename({c: ours.get(c.removesuffix(" (approx)"), c) for c in frame.columns}).drop("Rank", strict=False)


def same(ours: pl.DataFrame, theirs: pl.DataFrame, keys: list[str], tolerance: float = 0.0501) -> list[str]:
    """The columns that agree: ours and theirs have the same rows, and figures that differ by rounding at most."""
    assert ours.height == theirs.height
    both = ours.join(theirs, on=keys, how="inner", suffix="_nsys")
    assert both.height == ours.height
    compared = [c for c in ours.columns if c in theirs.columns and c not in keys and ours.schema[c].is_numeric()]
    for column in compared:
        a, b = (both[c].cast(pl.Float64).fill_nan(None).fill_null(0) for c in (column, f"{column}_nsys"))
        assert ((a - b).abs() <= tolerance).all(), column
    return compared


@pytest.mark.parametrize("recipe", [*SUMS, *TEXTS])
def test_figures_of_each_rank(train, recipe):
    theirs = golden("train", recipe, "rank_stats")
    theirs = theirs.with_columns(pl.col("File").replace_strict(FILES, return_dtype=pl.Int32).alias("rank"))
    compared = same(recipes.run(train, recipe).tables["rank_stats"], theirs, ["rank", "name"])
    assert len(compared) >= 9


@pytest.mark.parametrize("recipe", [*SUMS, *TEXTS])
def test_figures_of_all_ranks(train, recipe):
    theirs = golden("train", recipe, "all_stats")
    theirs = theirs.drop([c for c in theirs.columns if c.startswith(APPROXIMATE)])
    # nsys rounds halves to the even digit here, and up in the ranks' figures.
    compared = same(recipes.run(train, recipe).tables["all_stats"], theirs, ["name"], tolerance=0.1001)
    assert len(compared) >= 5


@pytest.mark.parametrize("recipe", [*SUMS[1:], *TEXTS, *NCCL])
def test_figures_over_processes(payloads, recipe):
    theirs = golden("payloads", recipe, "rank_stats")
    compared = same(recipes.run(payloads, recipe).tables["all_stats"], theirs, ["name"])
    assert len(compared) >= 9


def test_api_calls_of_what_is_no_rank_are_left_out(payloads):
    """The launcher asks for the device count; nsys counts that call, we say that it was left out."""
    theirs = golden("payloads", "cuda_api_sum", "rank_stats")
    ours = recipes.run(payloads, "cuda_api_sum").tables["all_stats"]
    both = ours.join(theirs, on="name", suffix="_nsys")
    assert both.height == ours.height == theirs.height
    assert both.filter(pl.col("n") != pl.col("n_nsys")).select("n", "n_nsys").rows() == [(16, 17)]
    assert any("not ranks" in note for note in payloads.notes)


@pytest.mark.parametrize("recipe", ["mpi_sum", "osrt_sum", "cuda_gpu_mem_size_sum"])
def test_traces_that_none_of_our_files_has(other, recipe):
    """Random records, added to a trace and given to nsys."""
    compared = same(recipes.run(other, recipe).tables["rank_stats"], golden("other", recipe, "rank_stats"), ["name"])
    assert len(compared) >= 9


@pytest.mark.parametrize("recipe", ["cuda_gpu_time_util_map", "nccl_gpu_time_util_map"])
def test_maps(payloads, recipe):
    theirs = golden("payloads", recipe, "analysis")
    width = theirs["start_ns"][1]
    ours = recipes.run(payloads, recipe, bins=10, start=0, end=10 * width).tables["analysis"]
    assert "bin" not in same(ours, theirs, ["pid", "device", "start_ns"], tolerance=0.1001)


@pytest.mark.parametrize("cumulative", [False, True])
def test_maps_of_several_files(train, cumulative):
    """On the clock of the captures' starts. nsys divides a bin in which a capture begins by what is left of it."""
    recipe = "cuda_gpu_time_util_map"
    theirs = golden("train", recipe + (".cum" if cumulative else ""), "analysis")
    width = theirs["start_ns"][1]
    ours = recipes.run(train, recipe, bins=10, start=0, end=10 * width, cumulative=cumulative).tables["analysis"]
    last = pl.col("start_ns") == 9 * width
    same(ours.filter(~last), theirs.filter(~last), ["pid", "device", "start_ns"], tolerance=0.1001)
    begins = train.sources[1].epoch_ns - train.sources[0].epoch_ns
    share = width / (10 * width - begins)
    slow = ours.filter(last & (pl.col("rank") == 1))["kernel_pct"][0]
    assert theirs.filter(last)["kernel_pct"].max() == pytest.approx(slow * share, rel=0.3)


@pytest.mark.parametrize(("recipe", "options"), [("gpu_gaps", {"gap": 1}), ("gpu_time_util", {"threshold": 100})])
@pytest.mark.parametrize("name", ["train", "payloads"])
def test_rules(request, name, recipe, options):
    ours = recipes.run(request.getfixturevalue(name), recipe, **options).tables["analysis"]
    assert {"dur_ns", "device", "context"} <= set(same(ours, golden(name, recipe, "analysis"), ["pid", "start_ns"]))


@pytest.mark.parametrize("recipe", ["cuda_api_sync", "cuda_memcpy_async"])
def test_rules_on_calls(train, recipe):
    ours = recipes.run(train, recipe).tables["analysis"]
    assert "dur_ns" in same(ours, golden("train", recipe, "analysis"), ["pid", "start_ns", "api"])


PACE = {
    "cuda_gpu_kern_pace": "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
    "nvtx_pace": "forward",
    "nvtx_gpu_proj_pace": "forward",
}


@pytest.mark.parametrize("recipe", PACE)
def test_pace(train, recipe):
    tables = recipes.run(train, recipe, name=PACE[recipe]).tables
    for file in ("start", "end", "duration", "duration_accum", "delta", "delta_accum"):
        assert tables[f"pace_{file}"].equals(golden("train", recipe, f"pace_{file}")), file
    theirs = golden("train", recipe, "pace_delta_stats")
    pairs = {"min": "Min", "q1": "Q1", "med": "Median", "q3": "Q3", "max": "Max", "avg": "Mean", "std": "Std"}
    for own, nsys in pairs.items():
        assert ((tables["delta_stats"][f"delta_{own}_ns"] - theirs[nsys]).abs() <= 0.0501).all(), own


def test_diff_of_two_profiles(train):
    """nsys subtracts the second from the first; we say what the second has more."""
    first, second = (recipes.run(train.view([r]), "cuda_gpu_kern_sum").tables["all_stats"] for r in (0, 1))
    ours = diff.compared(first, second, ["name"], diff.RECIPE.parse({})).tables["all_stats"]
    headers = {nsys: own for own, nsys in recipes.find("cuda_gpu_kern_sum").headers.items()}
    theirs = pl.read_csv(GOLDEN / "train.diff.all_stats.csv.gz").rename(lambda c: headers.get(c, c))
    theirs = theirs.with_columns(-pl.col(c) for c in theirs.columns if c != "name")
    assert len(same(ours, theirs, ["name"], tolerance=0.1001)) == 10


def test_goldens_are_all_used():
    walked = {*SUMS, *TEXTS, *NCCL, *PACE, "gpu_gaps", "gpu_time_util", "cuda_api_sync"}
    walked |= {"cuda_memcpy_async", "diff", "mpi_sum", "osrt_sum"}
    walked |= {"cuda_gpu_time_util_map", "nccl_gpu_time_util_map"}
    assert {Path(f).name.split(".")[1] for f in GOLDEN.glob("*.csv.gz")} == walked
