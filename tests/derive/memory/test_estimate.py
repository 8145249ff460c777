"""Estimates beside what was measured on an H200: transformers 5.17, torch 2.11, AdamW."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope import BadInput
from stepscope.analyses.memory.changes import of_job
from stepscope.derive.memory.estimate import Job, estimate
from stepscope.model.declared import Model, load, parameters

DATA = Path(__file__).parents[2] / "data" / "h200" / "memory"
MEASURED = {f["case"]: f for f in json.loads((DATA / "measured.json").read_text("utf-8"))}
QWEN3 = Model(
    "qwen3", 8, 1024, heads=16, kv_heads=8, head_width=128, dense_width=3072, vocabulary=32000, tied=True, qk_norm=True
)
LLAMA = Model("llama", 12, 2048, heads=32, kv_heads=8, dense_width=5632, vocabulary=8192)
CASES = {
    "qwen3_b4": Job(QWEN3, 1024, 4),
    "qwen3_b8": Job(QWEN3, 1024, 8),
    "qwen3_b8_ckpt": Job(QWEN3, 1024, 8, recompute=True),
    "qwen3_b8_autocast": Job(QWEN3, 1024, 8, precision="autocast"),
    "qwen3_b8_fused": Job(QWEN3, 1024, 8, optimizer="adamw-fused"),
    "llama_b4": Job(LLAMA, 2048, 4),
    "llama_b8": Job(LLAMA, 2048, 8),
    "llama_b8_ckpt": Job(LLAMA, 2048, 8, recompute=True),
}


#: Measured after the estimates were written: four layers, untied, 4 × 1024 tokens.
SMALL = replace(QWEN3, layers=4, vocabulary=16000, tied=False)
MIXTURE = replace(SMALL, dense_width=0, experts=16, experts_per_token=4, expert_width=768)
LATER = {
    "late": Job(SMALL, 1024, 4),
    "late_momentum": Job(SMALL, 1024, 4, optimizer="momentum"),
    "moe": Job(MIXTURE, 1024, 4),
    "moe_ckpt": Job(MIXTURE, 1024, 4, recompute=True),
    "eager_attention": Job(SMALL, 1024, 4, flash=False),
}


@pytest.mark.parametrize("case", LATER)
def test_programs_that_it_was_not_written_for(case):
    """Experts, another optimizer, attention with all its scores: within 2 %."""
    measured = max(allocated for allocated, _ in MEASURED[case]["peaks"])
    assert estimate(LATER[case]).size == pytest.approx(measured, rel=0.02)
    assert parameters(LATER[case].model) == MEASURED[case]["parameters"]


@pytest.mark.parametrize("case", CASES)
def test_the_peak_is_what_was_measured(case):
    """5 % is asked for; it is within a tenth of a percent, since every tensor is counted."""
    measured = max(allocated for allocated, _ in MEASURED[case]["peaks"])
    assert estimate(CASES[case]).size == pytest.approx(measured, rel=0.001)
    assert parameters(CASES[case].model) == MEASURED[case]["parameters"]


def test_parameters_of_the_six_layer_transformer():
    """`train/eager`: 12 h² of matrices, 9 h of biases and 4 h of norms a layer, by hand."""
    model = load("layers=6,width=1024,heads=16,dense_width=4096,gated=false,layer_norm=true,bias=true")
    assert parameters(model) == 6 * (12 * 1024**2 + 13 * 1024)


def test_presets_have_as_many_parameters_as_their_names_say():
    assert parameters(load("qwen3-30b-a3b")) == pytest.approx(30.5e9, rel=0.005)
    assert parameters(load("deepseek-v2-lite")) == pytest.approx(15.7e9, rel=0.005)


def test_zero_divides_states_then_gradients_then_weights():
    job = Job(LLAMA, 2048, 1, recompute=True, dp=4, optimizer="adamw-fused")
    stages = [estimate(replace(job, zero=stage)).peak.parts() for stage in range(4)]
    count = parameters(LLAMA)
    assert stages[0]["optimizer states"] == 4 * count
    assert [s["optimizer states"] for s in stages[1:]] == [count] * 3
    assert stages[0]["communication"] == stages[1]["communication"] == 2 * count
    assert "communication" not in stages[2]
    assert [s["weights"] for s in stages] == [2 * count] * 3 + [count // 2]
    sizes = [estimate(replace(job, zero=stage)).size for stage in range(4)]
    assert sizes == sorted(sizes, reverse=True)


def test_meshes_divide_what_they_say():
    job = Job(LLAMA, 2048, 2)
    whole = estimate(job)
    assert estimate(replace(job, cp=2)).peak.parts()["activations"] == pytest.approx(
        whole.peak.parts()["activations"] / 2, rel=0.01
    )
    halved = estimate(replace(job, tp=2))
    assert halved.parameters == pytest.approx(whole.parameters / 2, rel=0.01)
    staged = estimate(replace(job, pp=2))
    assert staged.parameters == pytest.approx(whole.parameters / 2, rel=0.05)
    mixture = Job(load("qwen3-30b-a3b"), 4096, ep=8)
    experts = 3 * 2048 * 768 * 128 * 48
    assert estimate(mixture).parameters == parameters(mixture.model) - experts + experts // 8


def test_changes_are_estimates():
    job = Job(LLAMA, 2048, 2)
    found = {change.name: change for change in of_job(job)}
    assert found["recomputation"].peak == estimate(replace(job, recompute=True)).size
    assert found["tp = 2"].saves == estimate(job).size - estimate(replace(job, tp=2)).size
    assert "micro-batch of 1" in found and "ep = 2" not in found


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (Job(Model("m", 2, 64), 128), "heads"),
        (Job(Model("m", 2, 64, heads=2), 128), "feed-forward"),
        (Job(replace(LLAMA, kv_heads=3), 128, tp=2), "KV heads"),
        (Job(LLAMA, 128, ep=2), "experts"),
        (Job(LLAMA, 128, zero=1), "--dp"),
    ],
)
def test_what_cannot_be_estimated_is_refused(job, why):
    with pytest.raises(BadInput, match=why):
        estimate(job)
