"""Measured kernels far below their roof: what the step gives back, worked out on paper."""

from __future__ import annotations

import polars as pl
import pytest

from fake import FakeSource, call, nvtx, op
from measuring import source
from stepscope import api
from stepscope.api.profile import Profile

US = 1000
SHAPE = {"grid_x": 1024, "grid_y": 1, "grid_z": 1, "block_x": 256, "block_y": 1, "block_z": 1}
#: 1 GFLOP of bf16 at 100 TFLOP/s: 10 µs at the roof.
TENSOR = {
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum": 1e9,
    "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum.peak_sustained": 1e5,
    "sm__cycles_elapsed.avg.per_second": 1e9,
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": 20.0,
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 15.0,
}


def profile(metrics: dict[str, float], length: int = 50, measured: str = "gemm") -> Profile:
    """Ten products of `length` µs, and ten other kernels of 10 µs, launched far ahead: the GPU is never idle."""
    ops, calls, at = [], [], 20 * US
    for n in range(20):
        took = (length if n % 2 else 10) * US
        ops.append(op(at, at + took, "gemm" if n % 2 else "other", 7, n + 1, **SHAPE))
        calls.append(call(n * 500, n * 500 + 400, n + 1))
        at += took
    ranges = [nvtx(0, at, "step 0"), nvtx(at + US, at + 2 * US, "step 1")]
    return Profile(
        [FakeSource({"ops": ops, "calls": calls, "ranges": ranges}), source({measured: metrics}, length * US)]
    )


def test_the_roof_gives_back_what_is_above_it() -> None:
    """At 80 % of the roof a product takes 12.5 µs of 50: 375 µs of a step of 600 come back; 400 at the roof itself."""
    result = api.analyse(profile(TENSOR), "diagnose", index=0, only=("below-roof",))
    row = result.rows.row(0, named=True)
    assert row["recoverable_ns"] == pytest.approx(375 * US, rel=0.01)
    assert row["recoverable_low_ns"] == pytest.approx(10 * (50 - 10 / 0.6) * US, rel=0.01)
    assert row["recoverable_high_ns"] == pytest.approx(400 * US, rel=0.01)
    assert "10 measured kernels are far from the roof" in row["title"]
    assert "take 500 µs of the step on rank 0, and 100 µs at their roofs" in row["evidence"]
    assert "at 20 % of its roof (bf16 tensor): bound by latency" in row["evidence"]


@pytest.mark.parametrize(
    ("metrics", "length", "measured"),
    [
        (TENSOR, 12, "gemm"),  # close to its roof
        (TENSOR, 50, "conv"),  # another program's kernel
        ({k: v for k, v in TENSOR.items() if not k.startswith("sm__ops")}, 50, "gemm"),  # no roof is known
        (TENSOR | {"sm__cycles_active.max": 10.0, "sm__cycles_elapsed.max": 100.0}, 50, "gemm"),  # overhead
    ],
)
def test_nothing_to_say(metrics: dict[str, float], length: int, measured: str) -> None:
    result = api.analyse(profile(metrics, length, measured), "diagnose", index=0, only=("below-roof",))
    assert result.rows.height == 0


def test_without_a_report_nothing_is_skipped() -> None:
    alone = Profile(profile(TENSOR)._sources[:1])
    result = api.analyse(alone, "diagnose", index=0)
    assert "below-roof" not in [s["id"] for s in result.summary.get("skipped", [])]


def test_a_bad_access_pattern_comes_first_in_the_advice() -> None:
    sectors = {"memory_l2_theoretical_sectors_global": 320.0, "memory_l2_theoretical_sectors_global_ideal": 40.0}
    result = api.analyse(profile(TENSOR | sectors), "diagnose", index=0, only=("below-roof",))
    row = result.rows.row(0, named=True)
    assert "uncoalesced: 88 % of sectors wasted" in row["evidence"]
    assert row["try_next"].startswith("let neighbouring threads read neighbouring addresses")


def test_the_command_shows_its_figures() -> None:
    opened = profile(TENSOR)
    row = api.analyse(opened, "kernels", index=0).rows.row(by_predicate=pl.col("name") == "gemm", named=True)
    assert row["total_ns"] == 500 * US
    assert row["roof_pct"] == pytest.approx(20.0)
