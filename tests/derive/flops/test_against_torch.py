"""Ours against torch.utils.flop_counter, on small models that are profiled on the CPU: forward, backward, run again."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import polars as pl
import pytest

from stepscope.derive.flops.work import from_shapes
from stepscope.derive.rank.data import ranks_of
from stepscope.model.profile import Profile
from stepscope.sources.open import open_sources

MODELS = ("mlp", "attention", "attention_in_full", "products", "convolutions", "autocast")


@pytest.fixture(scope="session")
def folder(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("flops")
    script = Path(__file__).with_name("flop_counter.py")
    done = subprocess.run([torch_python, script, found], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return found


def ops(folder: Path, name: str) -> pl.DataFrame:
    profile = Profile(open_sources(folder / f"{name}.pt.trace.json"))
    (data,) = ranks_of(profile)
    found = from_shapes(profile, data).ops
    assert found["why"].null_count() == found.height
    return found


def phases(folder: Path, name: str) -> dict[str, int]:
    return dict(ops(folder, name).group_by("phase").agg(pl.col("asked").sum()).iter_rows())


def truth(folder: Path) -> dict[str, list[int]]:
    return json.loads((folder / "flops.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_forward_and_backward(folder, name):
    forward, backward = truth(folder)[name]
    assert phases(folder, name) == {"forward": forward, "backward": backward}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["checkpoint", "checkpoint_reentrant"])
def test_what_runs_again(folder, name):
    """With checkpoints, all that runs is the same, and the forward pass once more."""
    forward, backward = truth(folder)["attention"]
    assert phases(folder, name) == {"forward": forward, "backward": backward, "recomputed": forward}
    assert sum(truth(folder)[name]) == 2 * forward + backward


@pytest.mark.slow
def test_what_is_differentiated_twice_does_not_run_again(folder):
    """`create_graph` records gradients in the backward pass, and is no checkpoint."""
    found = phases(folder, "twice_differentiated")
    assert set(found) == {"forward", "backward"} and sum(found.values()) == sum(truth(folder)["twice_differentiated"])


@pytest.mark.slow
def test_an_optimizer_that_multiplies(folder):
    forward, backward, step = truth(folder)["muon"]
    assert step and phases(folder, "muon") == {"forward": forward, "backward": backward, "optimizer": step}


@pytest.mark.slow
def test_types_are_those_that_were_computed_with(folder):
    assert set(ops(folder, "autocast")["precision"]) == {"bf16"} and set(ops(folder, "mlp")["precision"]) == {"fp32"}


@pytest.mark.slow
def test_attention_makes_scores_anew(folder):
    """torch.utils.flop_counter.sdpa_backward_flop_count has five products, of which one makes the scores anew."""
    found = ops(folder, "attention_in_full").filter(pl.col("kind") == "attention").sort("phase")
    product = 2 * 2 * 4 * 16 * 16 * 8
    assert found.select("phase", "asked", "causal", "again").rows() == [
        ("backward", 4 * product, 4 * product, product),
        ("forward", 2 * product, 2 * product, 0),
    ]
    causal = ops(folder, "attention").filter(pl.col("kind") == "attention")
    assert (causal["causal"] * 2 == causal["asked"]).all() and causal.height == 4
