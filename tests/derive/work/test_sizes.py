"""Sizes by grids, against the shapes that the programs of `tests/promises/programs` work on."""

from __future__ import annotations

import numpy as np
import pytest

from promises.new import unpacked
from stepscope import api
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.work.roles import kernels
from stepscope.derive.work.rules import Role
from stepscope.derive.work.sizes import _twice, sizes

#: gpt.py on a GPU: batch 4, 16 heads, 2048 tokens; 50304 words.
SCORES, LOGITS = 4 * 16 * 2048 * 2048, 4 * 2048 * 50304


@pytest.fixture(scope="module", params=["nsys", "torch"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RankData:
    folder = unpacked("gpt", "attention-by-hand", request.param, tmp_path_factory.mktemp("pairs"))
    return next(iter(ranks_of(api.open(folder, cache=False))))


def test_kernels_on_scores_have_as_many_elements(data: RankData) -> None:
    """Masks, scalings and the softmax of three layers: forward and backward."""
    ops = np.arange(len(data.start))
    found = sizes(data, ops)
    of_scores = found.elements == SCORES
    known = kernels(data, ops)
    per_step = 3 * 3  # layers, and steps of the capture
    assert (of_scores & known.are(Role.SOFTMAX)).sum() == per_step
    assert (of_scores & known.are(Role.ELEMENTWISE)).sum() == 5 * per_step  # masks, scalings, and softmax's product
    assert (found.elements == LOGITS).any()


def test_nothing_moves_more_than_memory_can(data: RankData) -> None:
    ops = np.arange(len(data.start))
    rate = sizes(data, ops).bytes / (data.end - data.start)
    assert np.nanmax(rate) <= 4800 * 1.03
    large = (data.end - data.start > 100_000) & kernels(data, ops).are(Role.ELEMENTWISE, Role.CAST, Role.FILL)
    assert np.nanmedian(rate[large]) > 2000  # and large ones come near it


def test_shapes_tell_how_many_elements_a_thread_takes() -> None:
    """Versions of PyTorch differ: where shapes were recorded they decide, whatever a few broadcasts say."""
    shaped = np.array([4.0, 4.0, 8.0])
    assert _twice(2 * shaped, shaped)
    assert not _twice(shaped, np.array([4.0, 4.0, 2.0]))
