"""Experts in a loop: two programs with one, and layers that only look like it."""

from __future__ import annotations

import pytest
from made_steps import ADD, ATTENTION, FILL, FUSED_ADAM, GATHER, NORM, PRODUCT, US, Kernel, job

from stepscope import api
from stepscope.model.profile import Profile

SILU = "at::native::vectorized_elementwise_kernel<4, silu_kernel(float)>"
SCATTER = "at::native::indexFuncLargeIndex<index_add>"
SELECT = "at_cuda_detail::cub::DeviceSelectSweepKernel<NonZeroOp>"
#: An H200 has 132 multiprocessors.
SMS = 132


def found(profile: Profile) -> dict[str, object] | None:
    rows = api.analyse(profile, "diagnose", least=0).rows.to_dicts()
    return next((row for row in rows if row["id"] == "experts-one-by-one"), None)


def around(experts: list[Kernel]) -> list[Kernel]:
    """A layer with attention before the experts, and a norm behind them."""
    return [(NORM, 20, 900), (PRODUCT, 90, 512), (ATTENTION, 80, 300), (PRODUCT, 60, 400), *experts, (NORM, 20, 900)]


def test_gathered_tokens_with_a_wait_for_each_expert() -> None:
    """Every expert takes 65 µs for what fills a quarter of the GPU, and the host waits before each."""
    expert: list[Kernel] = [(GATHER, 5, 33), (PRODUCT, 30, 33), (SILU, 5, 33), (PRODUCT, 20, 33), (SCATTER, 5, 33)]
    layer = around(expert * 8)
    waits = tuple(4 + 5 * k for k in range(8))
    profile = job((layer, 1), ([(FUSED_ADAM, 100, 1300)], 1), waits_at=waits)
    row = found(profile)
    assert row is not None and "40 small kernels" in str(row["title"])
    assert row["recoverable_ns"] >= 8 * 65 * US * 0.75  # type: ignore[operator]  # and the waits beside


def test_slices_of_padded_tokens_with_other_kernels_for_each_expert() -> None:
    names = ["nvjet_sm90_tst_64x64_TNT", "nvjet_sm90_tst_128x64_TNN", "cutlass_80_tensorop_bf16_s16816gemm_64x64"]
    experts: list[Kernel] = []
    for k in range(16):
        experts += [(names[k % 3], 12, 66), (SILU, 4, 66), (names[(k + 1) % 3], 12, 66), (ADD, 4, 66)]
    row = found(job((around(experts), 1), ([(FUSED_ADAM, 100, 1300)], 1)))
    assert row is not None
    assert row["recoverable_ns"] == pytest.approx(16 * 32 * US / 2, rel=0.25)  # each fills half of the GPU


def test_what_a_loop_does_to_whole_tensors_for_each_expert() -> None:
    """Experts have different numbers of tokens; the gradient of all is filled and added to for each one. Elementwise
    kernels have other forms where sizes are odd, and sorts lie between: all of it is the loop's."""
    experts: list[Kernel] = []
    for k in range(8):
        form = "at::native::vectorized_elementwise_kernel<4, " if k % 2 else "at::native::unrolled_elementwise_kernel<"
        mul = f"{form}at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> > >"
        experts += [
            (SELECT, 3, 2),
            (GATHER, 5, 800 + 9 * k),
            (PRODUCT, 10, 66),
            (mul, 5, 800 + 9 * k),
            (PRODUCT, 10, 66),
        ]
        experts += [(FILL, 30, 30_000), (ADD, 90, 30_000)]
    row = found(job((around(experts), 1), ([(FUSED_ADAM, 100, 1300)], 1)))
    assert row is not None
    once = (3 + 30 + 90) * (8 - 1)
    assert row["recoverable_ns"] == pytest.approx((once + 8 * (20 / 2 + 10 * 0.6)) * US, rel=0.15)


@pytest.mark.parametrize(
    "kernels",
    [
        pytest.param([*around([])] * 8, id="layers"),
        pytest.param([(NORM, 9, 90), *[(PRODUCT, 20, 60)] * 3, (ATTENTION, 40, 90), (PRODUCT, 20, 60)] * 8, id="small"),
        pytest.param([(PRODUCT, 20, 60), ("relu_kernel", 4, 60)] * 6, id="layers without norms"),
        pytest.param(
            around([(GATHER, 5, 900), (PRODUCT, 90, 4 * SMS), (SILU, 9, 900), (PRODUCT, 90, 4 * SMS)] * 8), id="full"
        ),
    ],
)
def test_what_is_not_a_loop_over_experts(kernels: list[Kernel]) -> None:
    assert found(job((kernels, 1), ([(FUSED_ADAM, 100, 1300)], 1))) is None
