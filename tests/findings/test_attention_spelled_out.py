"""Attention whose softmax is written out, by hand; and what has an exponential between products without being one."""

from __future__ import annotations

import re

import pytest
from made_steps import FUSED_ADAM, NORM, PRODUCT, Kernel, job, step

from fake import make, nvtx
from stepscope import api
from stepscope.model.profile import Profile


def elementwise(functor: str) -> str:
    return f"at::native::vectorized_elementwise_kernel<4, at::native::{functor}, at::detail::Array<char*, 2> >"


EXP, DIV = elementwise("exp_kernel_cuda(float)"), elementwise("BinaryFunctor<float, float, float, DivFunctor<float>>")
MAX = (
    "at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MaxOps<float>, unsigned int, float, 4> >"
)
SUM = (
    "at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
    "at::native::sum_functor<float, float, float> >, unsigned int, float, 4> >"
)
#: 33 million scores: blocks of 128 threads, eight numbers each.
SCORES = 32768
SOFTMAX: list[Kernel] = [(MAX, 60, 900), (DIV, 90, SCORES), (EXP, 70, SCORES), (SUM, 50, 900), (DIV, 90, SCORES)]
HALF, FLOAT = (PRODUCT, 50, 400), ("ampere_sgemm_128x128_tn", 400, 900)


def ids(profile: Profile) -> set[str]:
    return set(api.analyse(profile, "diagnose", least=0).rows["id"])


@pytest.mark.parametrize("gpu", ["NVIDIA H200", "Somebody's GPU"])
@pytest.mark.parametrize("product", [HALF, FLOAT], ids=["half precision", "float"])
def test_attention_with_its_softmax_written_out(product: Kernel, gpu: str) -> None:
    layer: list[Kernel] = [(NORM, 20, 900), (PRODUCT, 90, 512), product, *SOFTMAX, product, (PRODUCT, 60, 400)]
    profile = job((layer * 3, 1), ([(FUSED_ADAM, 50, 900)], 1), gpu=gpu)
    assert "attention-by-hand" in ids(profile)
    rows = api.analyse(profile, "compute", whole=True).rows
    assert rows.filter(rows["part"] == "attention")["n"].sum() == 3 * 7


@pytest.mark.parametrize(
    "between",
    [
        pytest.param([(EXP, 70, SCORES), (DIV, 90, SCORES)], id="a gate by formula"),
        pytest.param([(EXP, 70, SCORES), (SUM, 50, 900), (DIV, 90, SCORES)], id="a sum without a maximum"),
        pytest.param([(MAX, 60, 900), (DIV, 90, SCORES), (SUM, 50, 900)], id="no exponential"),
    ],
)
@pytest.mark.parametrize("gpu", ["NVIDIA H200", "Somebody's GPU"])
def test_what_is_not_a_softmax(between: list[Kernel], gpu: str) -> None:
    layer: list[Kernel] = [(NORM, 20, 900), HALF, *between, HALF]
    profile = job((layer * 3, 1), ([(FUSED_ADAM, 50, 900)], 1), gpu=gpu)
    assert "attention-by-hand" not in ids(profile)
    rows = api.analyse(profile, "compute", whole=True).rows
    assert "attention" not in rows["part"].to_list()


def test_of_an_unknown_gpu_what_lies_between_the_products_goes() -> None:
    """The replay cannot know how fast fused attention is there: the products stay."""
    layer: list[Kernel] = [(NORM, 20, 900), (PRODUCT, 90, 512), HALF, *SOFTMAX, HALF, (PRODUCT, 60, 400)]
    rows = api.analyse(job((layer * 3, 1), gpu="Somebody's GPU"), "diagnose", least=0).rows
    (row,) = rows.filter(rows["id"] == "attention-by-hand").to_dicts()
    assert row["recoverable_ns"] == 3 * 1000 * sum(long for _, long, _ in SOFTMAX)
    assert "masks and softmax between its matmuls" in row["evidence"]


LONG_ROWS = (
    "void (anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, c10::BFloat16, "
    "at::native::(anonymous namespace)::SoftMaxForwardEpilogue>(T4 *)"
)


def test_attention_of_which_only_the_softmax_tells() -> None:
    """Scaled within its product, no mask: nothing between the products says how many scores there are, but for the time
    of the softmax."""
    layer: list[Kernel] = [(NORM, 20, 900), (PRODUCT, 90, 512), HALF, (LONG_ROWS, 200, 8192), HALF, (PRODUCT, 60, 400)]
    rows = api.analyse(job((layer * 3, 1)), "diagnose", least=0).rows
    (row,) = rows.filter(rows["id"] == "attention-by-hand").to_dicts()
    assert row["recoverable_ns"] > 0.5 * 3 * 1000 * 300


def test_a_choice_of_tokens_is_no_attention() -> None:
    """A softmax over the vocabulary, and the next pass behind it: a norm stands before its first product."""
    layer: list[Kernel] = [(NORM, 20, 900), HALF, (LONG_ROWS, 200, 64), (NORM, 20, 900), HALF]
    assert "attention-by-hand" not in ids(job((layer * 3, 1), ([(FUSED_ADAM, 50, 900)], 1)))


def attention(*between: Kernel) -> list[Kernel]:
    """A layer whose heads are of 64 numbers: queries and keys are copied before, the output behind."""
    copied: Kernel = (elementwise("direct_copy_kernel_cuda(at::TensorIteratorBase&) {lambda(float)}"), 20, ROWS // 16)
    wider: Kernel = (elementwise("BUnaryFunctor<float, float, float, MulFunctor<float>>"), 20, ROWS // 4)
    return [(NORM, 20, 900), (PRODUCT, 90, 512), wider, copied, HALF, *between, HALF, copied, (PRODUCT, 60, 400)]


#: Rows of scores, each of 1,024 numbers.
ROWS = 32768
WARPS = "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, false>(int)"
SCALED = elementwise("AUnaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, MulFunctor<float>>")
MASKED = elementwise("masked_fill_kernel(at::TensorIterator&, c10::Scalar const&) {lambda(c10::BFloat16, bool)}")


def good_us(layer: list[Kernel]) -> float:
    """What fused attention would take, as the finding has it."""
    rows = api.analyse(job((layer * 3, 1)), "diagnose", least=0).rows
    (evidence,) = rows.filter(rows["id"] == "attention-by-hand")["evidence"]
    number, unit = re.search(r"would take about ([\d.]+) (µs|ms)", evidence).groups()  # type: ignore[union-attr]
    return float(number) * (1000 if unit == "ms" else 1)


def test_scores_that_nothing_masks_are_all_needed() -> None:
    """An encoder's attention has twice the FLOPs of a causal one on as many scores; a full mask is faster per FLOP."""
    bare = good_us(attention((SCALED, 80, ROWS), (WARPS, 160, ROWS)))
    masked = good_us(attention((SCALED, 80, ROWS), (MASKED, 120, ROWS), (WARPS, 160, ROWS)))
    assert 1.3 < bare / masked <= 2.0


def test_a_head_is_as_large_as_what_is_copied_next_to_the_products() -> None:
    """A tensor of the whole layer lies further away: 256 numbers a row, as many as a large head has."""
    of_head_64 = 3 * 4 * ROWS * 1024 * 64 / 2 / 1e6
    masked = good_us(attention((MASKED, 120, ROWS), (WARPS, 160, ROWS)))
    assert 250 < of_head_64 / masked < 450, "TFLOP/s of fused attention under a mask, heads of 64"


def test_a_host_that_only_another_finding_would_expose_promises_little() -> None:
    """The GPU is behind, but for a pause before which the host waits for it: launching faster gives nothing back until
    attention is fused."""
    layer = attention((SCALED, 80, ROWS), (WARPS, 400, ROWS))
    tail: list[Kernel] = [("at::native::elementwise_kernel<128, 4, tanh>", 3, 64)] * 8
    half, pause = 6 * len(layer + tail), 20_000_000
    tables = step(((layer + tail) * 12, 1), apart=24, waits_at=(half,))
    tables["ranges"] = [nvtx(0, tables["ops"][-1]["end_ns"] + pause + 10_000, "step 0")]
    for row in (*tables["ops"][half:], *tables["calls"][half + 1 :]):
        row["start_ns"], row["end_ns"] = row["start_ns"] + pause, row["end_ns"] + pause
    profile = make([{"proc": 0, "pid": 400, "device": 0, "gpu": "NVIDIA H200", "rank": 0}], **tables)
    rows = {row["id"]: row for row in api.analyse(profile, "diagnose", least=0).rows.to_dicts()}
    assert rows["attention-by-hand"]["recoverable_ns"] > 2_500_000
    late = rows["launch-bound"]
    assert late["recoverable_ns"] < 100_000
    assert "Once other findings are mended, it is worth 1" in late["evidence"]
