"""Channels that cuDNN pads, and norms that read their rows twice: beside those whose sizes fit."""

from __future__ import annotations

import pytest
from made_steps import FUSED_ADAM, PRODUCT, US, Kernel, job

from stepscope import api
from stepscope.model.profile import Profile

CONV, PADDING = "sm90_xmma_fprop_implicit_gemm_bf16bf16", "void nhwcAddPaddingKernel<__nv_bfloat16, float, true>"
MOMENTS, NORMED = "at::native::RowwiseMomentsCUDAKernel<float>", "at::native::LayerNormForwardCUDAKernel<float, float>"
ROWS = 100_000


def found(*kernels: Kernel) -> dict[str, object] | None:
    profile: Profile = job(([(PRODUCT, 50, 300), *kernels], 1), ([(FUSED_ADAM, 100, 1300)], 1))
    rows = api.analyse(profile, "diagnose", least=0).rows.to_dicts()
    return next((row for row in rows if row["id"] == "odd-shapes"), None)


def test_channels_that_are_padded_around_a_convolution() -> None:
    row = found(*[(PADDING, 50, 264), (CONV, 90, 400), (PADDING, 30, 264)] * 4)
    assert row is not None and "8 kernels have sizes" in str(row["title"]) and "pad channels" in str(row["evidence"])
    assert row["recoverable_ns"] == pytest.approx(4 * 80 * US, rel=0.05)


def test_a_norm_that_reads_its_rows_twice() -> None:
    """In one pass it would take 1.6 ns for each row: more than the second of its kernels."""
    row = found(*[(MOMENTS, 500, ROWS), (NORMED, 60, ROWS), (CONV, 90, 400)] * 3)
    assert row is not None and "twice for a layer norm" in str(row["evidence"])
    assert row["recoverable_ns"] == pytest.approx(3 * (560 - 160) * US, rel=0.05)


@pytest.mark.parametrize(
    "kernels",
    [
        pytest.param([(PADDING, 50, 264), (CONV, 90, 400), *[(CONV, 90, 400)] * 6], id="images of three channels"),
        pytest.param([(MOMENTS, 60, 80), (CONV, 90, 400)] * 3, id="moments of a group norm"),
        pytest.param([("at::native::vectorized_layer_norm_kernel<float>", 200, ROWS), (CONV, 90, 400)] * 3, id="fits"),
    ],
)
def test_sizes_that_fit(kernels: list[Kernel]) -> None:
    assert found(*kernels) is None


def test_miopen_turns_tensors_around_too() -> None:
    """As an MI210 ran ResNet's convolutions in NCHW: a transposition on either side of each."""
    turned: Kernel = ("batched_transpose_16x64_pack_1x4_ediv_1x2_half", 30, 4096)
    igemm: Kernel = ("igemm_fwd_gtcx2_nhwc_bf16_bx0_ex1_bt256x128x32_wt32x32x8_ws2x1_wr2x2", 200, 512)
    rows = api.analyse(job(([turned, igemm, turned] * 8, 1), gpu="AMD Instinct MI210"), "diagnose", least=0).rows
    (row,) = rows.filter(rows["id"] == "memory-layout").to_dicts()
    assert row["recoverable_ns"] == pytest.approx(16 * 30_000, rel=0.1)
