"""Shapes of models that ship: their numbers of parameters are those of the published weights.

Counts are of all tensors of the weights that were released, to the last one: a wrong width or number of layers shows.
"""

from __future__ import annotations

import pytest

from stepscope.errors import BadInput
from stepscope.model.declared import load, names, parameters

#: GPT-2 learns 1,024 positions, which depend on no layer.
POSITIONS = {"gpt2": 1024 * 768, "gpt2-xl": 1024 * 1600}
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
}
#: Latent attention has norms of its own, and routing a bias, which no figure of ours needs.
ABOUT = {"deepseek-v2-lite": 15.7e9, "deepseek-v3": 671e9}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_shape_has_the_parameters_of_the_weights(name: str) -> None:
    assert parameters(load(name)) + POSITIONS.get(name, 0) == PUBLISHED[name]


@pytest.mark.parametrize("name", ABOUT)
def test_a_shape_has_about_the_parameters_of_the_weights(name: str) -> None:
    assert parameters(load(name)) == pytest.approx(ABOUT[name], rel=2e-3)


def test_every_preset_is_checked() -> None:
    assert {*PUBLISHED, *ABOUT} <= set(names())


def test_a_name_that_is_not_known_shows_how_to_write_a_model_out() -> None:
    with pytest.raises(BadInput) as error:
        load("my-own-70b")
    said = str(error.value)
    assert said.startswith("--model my-own-70b: not known") and "layers=32,width=4096" in said and "TOML" in said
    written = said.rpartition(" ")[2]
    assert parameters(load(written)) == PUBLISHED["llama-3.1-8b"]
