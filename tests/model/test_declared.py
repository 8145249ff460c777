"""Declared models: their parameters as published, and one counted by hand."""

from __future__ import annotations

import pytest

from stepscope.errors import BadInput
from stepscope.model.declared import load, matrices

#: All parameters and those that a token uses, in 10⁹, as the models' cards state them; embeddings are added here.
PUBLISHED = {
    "qwen3-30b-a3b": (30.5, 3.3),
    "deepseek-v2-lite": (15.7, 2.4),
    # meta-llama/Meta-Llama-3-8B and openai-community/gpt2 (tied: the output matrix is the embedding).
    "layers=32,width=4096,heads=32,kv_heads=8,dense_width=14336,vocabulary=128256": (8.03, 8.03),
    "layers=12,width=768,heads=12,dense_width=3072,vocabulary=50257,gated=false": (0.124 + 0.0386, 0.124 + 0.0386),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_as_published(name):
    model = load(name)
    embedding = model.width * model.vocabulary
    stored = sum(m.parameters for m in matrices(model)) + embedding
    used = sum(m.flops // 2 for m in matrices(model)) + embedding
    for found, billions in zip((stored, used), PUBLISHED[name], strict=True):
        # Cards round, some leave embeddings out of what a token uses, and norms and positions are not products.
        assert found / 1e9 == pytest.approx(billions, rel=0.02) or (found - embedding) / 1e9 == pytest.approx(
            billions, rel=0.1
        )


def test_a_model_written_out():
    model = load("layers=2,width=8,heads=2,kv_heads=1,dense_width=32,gated=false,vocabulary=100")
    by_part = {m.part: (m.parameters, m.flops) for m in matrices(model)}
    assert by_part == {
        "query": (2 * 64, 256),
        "key, value": (2 * 8 * 8, 256),
        "attention output": (2 * 64, 256),
        "feed-forward": (4 * 8 * 32, 2048),
        "output": (800, 1600),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("layers=2", "width is missing"),
        ("layers=2,width=8,depth=3", "no key 'depth'"),
        ("layers=two,width=8", "give layers a number"),
        ("layers=2,width=8,gated=1", "give gated true or false"),
        ("layers=2,width=8,dense_layers=3", "dense_layers = 3, but layers = 2"),
        ("layers=2,width=8,experts=4,experts_per_token=5", "experts_per_token = 5, but experts = 4"),
        ("layers=2,width=8,heads=2,kv_rank=4,rope_width=5", "rope_width = 5, but head = 4"),
    ],
)
def test_what_is_refused(text, said):
    with pytest.raises(BadInput, match=said):
        load(text)
