"""How many warps a launch leaves room for: by hand, as Nsight Compute counts, and as torch.profiler estimates."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fake import call, make, op
from stepscope import api
from stepscope.derive.kernel.room import estimated, held, room_of
from stepscope.derive.rank.data import ranks_of
from stepscope.model.gpus import chip_of, gpu_of, gpus

NCU = Path(__file__).parents[2] / "data" / "ncu"


def launches(*rows: tuple[int, int, int | None, int | None]) -> pl.DataFrame:
    """Threads of a block, registers, static and dynamic shared memory."""
    table = [
        {"block_x": t, "block_y": 1, "block_z": 1, "registers": r, "smem_static": s, "smem_dynamic": d}
        for t, r, s, d in rows
    ]
    return pl.DataFrame(table, schema_overrides={"smem_static": pl.UInt32, "smem_dynamic": pl.UInt32})


def test_by_hand_on_an_h100():
    """64 warps and 65,536 registers: a warp of 168 registers takes 5,376, so that 3 fit into each of four parts."""
    found = held(
        launches(
            (384, 168, 0, 0),  # 12 warps a block: one block
            (256, 32, 0, 0),  # 8 warps of 1,024 registers: 8 blocks, all that fit
            (32, 16, 0, 0),  # 32 blocks of one warp
            (128, 32, 0, 100_000),  # two blocks of 100,000 + 1,024 bytes in 233,472
            (1024, 40, 4096, 0),  # 32 warps of 1,280 registers: 48 warps fit, one block
            (256, 32, None, None),  # not recorded
        ),
        chip_of("NVIDIA H100 80GB HBM3"),
    )
    assert found["theoretical_occupancy_pct"].to_list() == [18.75, 100.0, 50.0, 12.5, 50.0, None]
    limits = ["registers", None, "blocks per multiprocessor", "shared memory", "registers", None]
    assert found["occupancy_limiter"].to_list() == limits


def test_what_nsight_compute_counts(tmp_path):
    """The six kernels of the probe on an H200: what it says they could hold, and why no more."""
    report = tmp_path / "full.ncu-rep"
    report.write_bytes(lzma.decompress((NCU / "probe" / "full.ncu-rep.xz").read_bytes()))
    measured = api.open(report, cache=False).roofline(by="kernel").rows.sort("kernel")
    shapes = launches(
        (256, 28, 0, 0), (256, 23, 0, 0), (32, 24, 0, 0), (256, 30, 0, 0), (256, 16, 4096, 0), (32, 16, 0, 0)
    )
    found = held(shapes, chip_of("NVIDIA H200"))
    assert found["theoretical_occupancy_pct"].to_list() == measured["theoretical_occupancy_pct"].to_list()
    for ours, its in zip(found["occupancy_limiter"], measured["occupancy_limiter"], strict=True):
        assert (
            ours is None if its is None else ours in its
        )  # it also counts barriers, and the driver's choice of memory


@pytest.mark.parametrize("name", ["models/gpt", "train/train", "probe/probe"])
def test_what_torch_estimates(name):
    """Its figure of every launch of which it has one: what the launch allows, or all its warps."""
    profile = api.open(NCU / f"{name}.pt.trace.json.gz", cache=False)
    (data,) = ranks_of(profile)
    told = dict(profile.by_rank("ops", detail=True))[0]["occupancy_pct"]
    every = np.arange(told.len())
    ours = estimated(data, every, pl.Series("occupancy_pct", [0.0] * told.len()))  # as if it had said nothing
    both = pl.DataFrame({"told": told, "ours": ours}).filter(pl.col("told") > 0)
    assert both.height > 40 and (both["told"] - both["ours"]).abs().max() <= 1.0
    mended = estimated(data, every, told)
    assert mended.filter(told > 0).equals(told.filter(told > 0)) and mended.is_null().equals(told.is_null())


def test_products_are_not_said_to_fill_nothing():
    """torch says 0 of kernels with more than 48 KiB of shared memory: 12 of 64 warps."""
    rows = api.open(NCU / "models" / "gpt.pt.trace.json.gz", cache=False).kernels().rows
    products = rows.filter(pl.col("name").str.starts_with("nvjet"))
    assert products["occupancy_pct"].min() > 18 and products["theoretical_occupancy_pct"].unique().to_list() == [18.75]


def test_a_gpu_that_is_not_known():
    (data,) = ranks_of(make(ops=[op(0, 9, call=1)], calls=[call(0, 1, 1)]))
    assert room_of(data, np.array([0]))["theoretical_occupancy_pct"].to_list() == [None]
    assert chip_of("AMD Instinct MI300X") is None and chip_of(None) is None


def test_every_gpu_names_a_chip_that_is_there():
    without = [gpu.name for gpu in gpus() if gpu.vendor == "nvidia" and chip_of(gpu.name) is None]
    assert without == ["P100"] and gpu_of("P100").chip == ""
