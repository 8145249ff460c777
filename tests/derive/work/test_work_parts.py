"""Parts of a model by what stands beside what, against programs whose layers are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fake import call, make, op
from promises.new import unpacked
from stepscope import api
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.work.parts import layers, parts
from stepscope.derive.work.phases import BACKWARD, FORWARD, phases, symbols_of
from stepscope.derive.work.roles import Role, kernels
from stepscope.derive.work.sizes import sizes
from stepscope.derive.work.step import chains

#: What gpt.py and hf_trainer.py have.
LAYERS = 3


def _step(program: str, fault: str, tool: str, folder: Path) -> tuple[RankData, np.ndarray]:  # type: ignore[type-arg]
    profile = api.open(unpacked(program, fault, tool, folder), cache=False)
    data = next(iter(ranks_of(profile)))
    return data, windows(profile, WindowSpec()).of(data.rank)[0].ops


@pytest.mark.parametrize("program", ["gpt", "hf_trainer"])
@pytest.mark.parametrize("tool", ["nsys", "torch"])
def test_layers_are_found_by_repetition(program: str, tool: str, tmp_path: Path) -> None:
    data, ops = _step(program, "none", tool, tmp_path)
    when = phases(data, ops)
    order = np.lexsort((data.start[ops], data.launched_at[ops]))
    for phase in (FORWARD, BACKWARD):
        found = layers(symbols_of(data, ops)[order[when.phase[order] == phase]])
        assert found.times == LAYERS


@pytest.mark.parametrize("pair", [("gpt", "attention-by-hand"), ("hf_trainer", "eager-attention")])
@pytest.mark.parametrize("tool", ["nsys", "torch"])
def test_attention_by_hand_is_a_group(pair: tuple[str, str], tool: str, tmp_path: Path) -> None:
    """Two products forward and four backward in each layer; its healthy twin has none."""
    data, ops = _step(*pair, tool, tmp_path)
    kinds = kernels(data, ops)
    found = parts(data, ops, kinds)
    products = found.by_hand & kinds.are(Role.PRODUCT) & kinds.matrix
    assert products.sum() == LAYERS * (2 + 4)
    assert (found.by_hand & kinds.are(Role.SOFTMAX)).sum() == 2 * LAYERS
    twin, healthy = _step(pair[0], "none", tool, tmp_path)
    assert not parts(twin, healthy).by_hand.any()
    own, its = ((d.end - d.start)[o] for d, o in ((data, ops), (twin, healthy)))
    rest = own.sum() - own[found.by_hand].sum()
    attention = its[parts(twin, healthy).are("attention")].sum()
    assert rest == pytest.approx(its.sum() - attention, rel=0.06)  # all else takes as long as it does there


def test_a_softmax_that_chooses_experts_is_no_attention() -> None:
    names = ["nvjet_tst_router", "softmax_warp_forward", "radixSort", "nvjet_tst_expert"]
    profile = make(
        ops=[op(10 * k, 10 * k + 9, name, call=k) for k, name in enumerate(names)],
        calls=[call(10 * k - 5, 10 * k - 4, k) for k in range(len(names))],
    )
    data = next(iter(ranks_of(profile)))
    assert not parts(data, np.arange(len(names))).by_hand.any()


@pytest.mark.parametrize(
    ("text", "period", "times", "begin"),
    [("abcabcabc", 3, 3, 0), ("xxyabcdabcdabcdz", 4, 3, 3), ("abcdefg", 0, 0, 0), ("aabaab", 3, 2, 0)],
)
def test_the_shortest_sequence_that_recurs(text: str, period: int, times: int, begin: int) -> None:
    found = layers(np.array([ord(c) for c in text]))
    assert (found.period, found.times, found.begin) == (period, times, begin)


def test_a_chain_is_what_one_kernel_could_be() -> None:
    """Two elementwise kernels and a reduction between products are a chain; one on another stream, and one alone, are
    none."""
    fill = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul>>()"
    names = ["gemm", fill, fill, "reduce_kernel", "gemm", fill, "gemm", fill]
    streams = [7] * 7 + [8]
    shape = {"grid_x": 10, "grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}
    profile = make(
        ops=[
            op(10 * k, 10 * k + 9, n, s, call=k, **shape) for k, (n, s) in enumerate(zip(names, streams, strict=True))
        ],
        calls=[call(10 * k - 5, 10 * k - 4, k) for k in range(len(names))],
    )
    data = next(iter(ranks_of(profile)))
    ops = np.arange(len(names))
    kinds = kernels(data, ops)
    found = chains(data, ops, kinds, phases(data, ops, kinds), sizes(data, ops, kinds))
    assert found.of.tolist() == [-1, 0, 0, 0, -1, -1, -1, -1]
    assert (found.count.tolist(), found.ns.tolist()) == ([3], [27])
    assert found.needed[0] == 10 * 128 * 8 * 4


@pytest.mark.parametrize("before", ["cudnn::winograd_nonfused::winogradForwardFilter4x4", "cudnn::im2col4d_kernel"])
def test_products_of_convolutions_are_convolutions(before: str) -> None:
    """The same kernel is a linear layer where nothing brings numbers into a convolution's form beside it."""
    names = [before, "volta_sgemm_64x64_nt", "relu_kernel", "volta_sgemm_64x64_nt", "relu_kernel"]
    calls = [call(10 * k, 10 * k + 2, id=k + 1) for k in range(len(names))]
    profile = make(ops=[op(10 * k + 3, 10 * k + 9, name, call=k + 1) for k, name in enumerate(names)], calls=calls)
    rows = api.analyse(profile, "compute", whole=True).rows
    found = dict(rows.group_by("part").agg(pl.col("n").sum()).iter_rows())
    assert found == {"convolutions": 2, "linear layers": 1, "elementwise": 2}
