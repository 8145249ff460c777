"""FLOPs of declared models beside the formulas that others publish."""

from __future__ import annotations

import pytest

from stepscope.analyses.mfu.declared import TRAINING, of_token
from stepscope.model.declared import load, matrices

#: Llama-3-8B, GPT-3 175B, and Qwen3-30B-A3B with its experts.
MODELS = [
    "layers=32,width=4096,heads=32,kv_heads=8,dense_width=14336,vocabulary=128256",
    "layers=96,width=12288,heads=96,dense_width=49152,vocabulary=50257,gated=false",
    "qwen3-30b-a3b",
]


def per_token(model, sequence, full=True):
    return TRAINING * sum(part.of(full) for part in of_token(model, sequence))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sequence", [2048, 8192])
def test_megatron(name, sequence):
    """Megatron-LM's `num_floating_point_operations`, per token: 12·L·h²·((1 + g/a + s/h)·q + f/h·k·(3/2 if gated) +
    V/(2·L·h)), with q the width of all queries over h. It counts no router; and today half of s, for the mask."""
    m = load(name)
    h, q = m.width, m.heads * m.head / m.width
    width, used = (m.expert_width, m.experts_per_token) if m.experts else (m.dense_width, 1)
    router = TRAINING * sum(x.flops for x in matrices(m) if x.part == "router")
    for full, seen in ((True, sequence), (False, sequence / 2)):
        attention = (1 + (m.kv_heads or m.heads) / m.heads + seen / h) * q
        feed_forward = width / h * used * (1.5 if m.gated else 1)
        published = 12 * m.layers * h * h * (attention + feed_forward + m.vocabulary / (2 * m.layers * h))
        assert per_token(m, sequence, full) - router == pytest.approx(published, rel=1e-12)


@pytest.mark.parametrize("name", MODELS[:2])
def test_palm_and_torchtitan(name):
    """6·N + 12·L·H·Q·T a token (PaLM, appendix B; torchtitan): N without embeddings (here: and norms)."""
    m = load(name)
    parameters = sum(x.parameters for x in matrices(m))
    assert per_token(m, 2048) == 6 * parameters + 12 * m.layers * m.heads * m.head * 2048
