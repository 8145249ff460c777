"""Gradients of gathered rows: dense ones of large tables, and sorted indices; and embeddings of a language model."""

from __future__ import annotations

import pytest
from made_steps import FILL, FUSED_ADAM, GATHER, NORM, PRODUCT, US, Kernel, job

from stepscope import api
from stepscope.model.profile import Profile

SCATTER = "at::native::(anonymous namespace)::embedding_backward_feature_kernel<float, float, long>"
SORT = "at_cuda_detail::cub::DeviceRadixSortOnesweepKernel"
PUT = "at::native::indexing_backward_kernel<float, 4>"
SGD = "at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >"
#: Blocks of 128 threads, eight numbers each: a table of 64 million numbers, 256 MB.
TABLE = 64_000_000 // 1024
MLP: list[Kernel] = [(PRODUCT, 40, 200), ("relu_kernel", 8, 900)] * 3
BACK: list[Kernel] = [("nvjet_sm90_tst_128x64_NNT", 40, 200), ("nvjet_sm90_tst_128x64_NTT", 40, 200)] * 3


def found(profile: Profile) -> dict[str, object] | None:
    rows = api.analyse(profile, "diagnose", least=0).rows.to_dicts()
    return next((row for row in rows if row["id"] == "slow-indexing"), None)


def test_dense_gradients_of_tables_of_which_few_rows_are_used() -> None:
    backward = [*BACK, *[(FILL, 65, TABLE), (SCATTER, 12, 500)] * 4]
    step: list[Kernel] = [(FUSED_ADAM, 1000, 4 * 64_000_000 // 65536 + 20)]
    row = found(job(([(GATHER, 10, 500)] * 4 + MLP, 1), (backward, 2), (step, 1)))
    assert row is not None
    assert row["recoverable_ns"] == pytest.approx((4 * 65 + 1000) * US, rel=0.1)


def test_an_index_that_is_sorted_for_its_gradient() -> None:
    backward = [*BACK, (FILL, 20, 5000), *[(SORT, 40, 300)] * 4, (PUT, 60, 4000)]
    row = found(job(([(GATHER, 30, 4000), *MLP], 1), (backward, 2), ([(FUSED_ADAM, 90, 1300)], 1)))
    assert row is not None
    assert row["recoverable_ns"] == pytest.approx(4 * 40 * US, rel=0.1)


@pytest.mark.parametrize("scatter", [SCATTER, "at::native::(anonymous namespace)::compute_grad_weight<float>"])
def test_an_embedding_of_a_language_model_is_used_all_over(scatter: str) -> None:
    backward = [*BACK, (FILL, 35, TABLE // 2), (scatter, 130, 9000)]
    layers: list[Kernel] = [(NORM, 20, 900), (PRODUCT, 90, 512)] * 4
    assert found(job(([(GATHER, 30, 4000), *layers], 1), (backward, 2), ([(FUSED_ADAM, 90, 1300)], 1))) is None


def test_sorts_of_the_forward_pass_are_a_choice() -> None:
    forward: list[Kernel] = [(NORM, 20, 900), (PRODUCT, 40, 200), (SORT, 40, 300), (SORT, 40, 300)]
    assert found(job((forward, 1), (BACK, 2), ([(FUSED_ADAM, 90, 1300)], 1))) is None


@pytest.mark.parametrize(("others", "named"), [(1.05, True), (2.0, False)])
def test_tables_whose_few_rows_take_long_to_scatter(others: float, named: bool) -> None:
    """Scattering takes longer than filling, but its grid covers a twentieth of the table: the optimizer's pass over the
    rest is for nothing, in a model that is little else."""
    backward = [*BACK, *[(SORT, 6, 29), (FILL, 55, TABLE), (SORT, 4, 1), (SCATTER, 150, 25_000)] * 2]
    step: list[Kernel] = [(FUSED_ADAM, 700, int(others * 2 * 64_000_000 / 65536))]
    row = found(job(([(GATHER, 10, 500)] * 2 + MLP, 1), (backward, 2), (step, 1)))
    assert row is not None
    whole = 2 * 55 + 700 / others if named else 0
    assert row["recoverable_ns"] == pytest.approx((2 * (6 + 4) + whole) * US, rel=0.1)
