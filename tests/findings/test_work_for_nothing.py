"""A forward pass that nothing is trained by: two programs with it, and many passes that are all needed."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from made_steps import ADD, ATTENTION, FUSED_ADAM, GATHER, NORM, PRODUCT, US, Kernel, job

from promises import new
from stepscope import api
from stepscope.model.profile import Profile

CONV, CONV_BACK = "sm90_xmma_fprop_implicit_gemm_bf16", "sm90_xmma_dgrad_implicit_gemm_bf16"
MAIN, ENGINE = 1, 2

EMBED: list[Kernel] = [(GATHER, 30, 4000), (ADD, 20, 5000)]
LAYER: list[Kernel] = [(NORM, 20, 900), (PRODUCT, 90, 512), (ATTENTION, 80, 300), (PRODUCT, 60, 400), (ADD, 20, 5000)]
HEAD: list[Kernel] = [(PRODUCT, 150, 1800)]
LOSS: list[Kernel] = [("cunn_SoftMaxForward<LogSoftMaxForwardEpilogue>", 60, 700), ("nll_loss_forward_reduce", 9, 1)]
FORWARD = [*EMBED, *LAYER * 3, *HEAD]


def back(kernels: list[Kernel], gradients: int = 2) -> list[Kernel]:
    """Two products for each of the forward pass, or one where weights are frozen."""
    found: list[Kernel] = []
    for name, long, blocks in reversed(kernels):
        if name == PRODUCT:
            found += [(f"nvjet_sm90_tst_128x64_N{k}T", long, blocks) for k in range(gradients)]
        elif name == CONV:
            found += [(CONV_BACK, long, blocks), (CONV_BACK.replace("dgrad", "wgrad"), long, blocks)][:gradients]
        elif name == ATTENTION:
            found.append(("flash_bwd_kernel", 2 * long, blocks))
        else:
            found.append((f"{name.split('<')[0]}_backward", long, blocks))
    return found


BACKWARD = back([*FORWARD, *LOSS])
STEP: list[Kernel] = [(FUSED_ADAM, 100, 1300)]


def found(profile: Profile) -> dict[str, object] | None:
    rows = api.analyse(profile, "diagnose", least=0).rows.to_dicts()
    return next((row for row in rows if row["id"] == "unused-forward"), None)


def test_a_second_forward_pass_for_the_accuracy() -> None:
    row = found(job(([*FORWARD, *LOSS, *FORWARD], MAIN), (BACKWARD, ENGINE), (STEP, MAIN)))
    assert row is not None and row["cause"] == "possible"
    assert row["recoverable_ns"] == pytest.approx(sum(long for _, long, _ in FORWARD) * US, rel=0.1)


def test_one_after_the_backward_pass_of_a_network_of_convolutions() -> None:
    stem: list[Kernel] = [(CONV, 70, 800), ("bn_fw_tr_1C11", 30, 64), ("relu_kernel", 10, 3000)]
    block: list[Kernel] = [(CONV, 50, 400), ("bn_fw_tr_1C11", 20, 128), ("relu_kernel", 8, 1500)]
    forward: list[Kernel] = [*stem, *block * 6, ("adaptive_average_pool", 9, 100), (PRODUCT, 20, 60)]
    row = found(job((forward, MAIN), (back(forward), ENGINE), (forward, MAIN), (STEP, MAIN)))
    assert row is not None
    assert row["recoverable_ns"] == pytest.approx(sum(long for _, long, _ in forward) * US, rel=0.05)


@pytest.mark.parametrize(
    "passes",
    [
        pytest.param([([*FORWARD, *LOSS], MAIN), (BACKWARD, ENGINE)] * 2, id="accumulation"),
        pytest.param([(FORWARD * 2 + LOSS, MAIN), (BACKWARD + back(FORWARD), ENGINE)], id="two towers, one loss"),
        pytest.param([([*FORWARD, *LOSS], MAIN), (back([*FORWARD, *LOSS], 1), ENGINE)], id="frozen weights"),
        pytest.param(
            [(FORWARD, MAIN), (FORWARD, MAIN), (BACKWARD, ENGINE), (FORWARD, MAIN), (BACKWARD * 2, ENGINE)],
            id="a pipeline",
        ),
        pytest.param([(FORWARD * 3, MAIN)], id="inference"),
    ],
)
def test_passes_that_are_needed(passes: list[tuple[list[Kernel], int]]) -> None:
    assert found(job(*passes, (STEP, MAIN))) is None


@pytest.mark.slow
@pytest.mark.parametrize("tool", new.TOOLS)
@pytest.mark.parametrize("program", ["gpt", "hf_trainer"])
def test_real_steps_that_evaluate(program: str, tool: str, tmp_path: Path) -> None:
    """Every third step has four forward passes more (H200): in these alone, for about as long as they are longer."""
    profile = api.open(new.unpacked(program, "evaluate-every-3", tool, tmp_path), cache=False)
    lengths = profile.iterations().rows["gpu_ns"].to_list()
    usual = statistics.median(lengths)
    for index, length in enumerate(lengths):
        rows = profile.diagnose(index=index, least=0).rows.to_dicts()
        told = sum(row["recoverable_ns"] for row in rows if row["id"] == "unused-forward")
        evaluates = length > 1.8 * usual
        assert told == (pytest.approx(length - usual, rel=0.25) if evaluates else 0), index


CAST = (
    "at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::"
    "[lambda() (instance 3)], at::detail::Array<char *, 2>, 4, at::native::memory::LoadWithCast<1>>"
)


def gradients(layers: int, adds: bool) -> list[Kernel]:
    """A layer's two products backward, the second for its weight, which is cast; and added to what is there."""
    one: list[Kernel] = [
        ("layer_norm_backward", 20, 900),
        ("nvjet_sm90_tst_128x64_NNT", 90, 512),
        ("nvjet_sm90_tst_128x64_NTT", 80, 512),
        (CAST, 10, 2048),
    ]
    return [*one, *([(ADD, 12, 1024)] if adds else [])] * layers


def unused(*passes: tuple[list[Kernel], int]) -> dict[str, object] | None:
    rows = api.analyse(job(*passes), "diagnose", least=0).rows.to_dicts()
    return next((row for row in rows if row["id"] == "unused-gradients"), None)


def test_gradients_of_frozen_layers_are_added_to_what_earlier_steps_left() -> None:
    backward = [*gradients(4, adds=False), *gradients(6, adds=True)]
    row = unused((FORWARD, MAIN), (backward, ENGINE), (STEP, MAIN))
    assert row is not None and "30 kernels" in str(row["title"])
    assert row["recoverable_ns"] == pytest.approx(6 * 212 * US, rel=0.05)


@pytest.mark.parametrize(
    "backward",
    [
        pytest.param(gradients(10, adds=False), id="all are trained"),
        pytest.param(gradients(10, adds=True), id="gradients are set to zero, not to nothing"),
        pytest.param([*gradients(9, adds=False), *gradients(1, adds=True)], id="one weight is used twice"),
        pytest.param([*gradients(1, adds=False), *gradients(9, adds=True)], id="a head of other numbers"),
        pytest.param([*gradients(4, adds=False), *gradients(1, adds=True) * 2, *gradients(6, adds=False)], id="some"),
    ],
)
def test_gradients_that_are_stepped(backward: list[Kernel]) -> None:
    assert unused((FORWARD, MAIN), (backward, ENGINE), (STEP, MAIN)) is None


def test_micro_batches_add_to_gradients() -> None:
    passes = [(FORWARD, MAIN), (gradients(6, adds=False), ENGINE), (FORWARD, MAIN), (gradients(6, adds=True), ENGINE)]
    assert unused(*passes, (STEP, MAIN)) is None
