"""What the program had set in torch and the memory that it took: asked by hooks, kept in the manifest, used here."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import test_recomputation as checkpointed
from made_steps import FILL, FUSED_ADAM, NORM, PRODUCT, US, Kernel, job

from fake import make
from promises import new
from stepscope import api
from stepscope.hooks.facts import facts
from stepscope.model.profile import Profile

CONV = "sm90_xmma_fprop_implicit_gemm_bf16"


def told(monkeypatch: pytest.MonkeyPatch, profile: Profile, finding: str, **known: Any) -> dict[str, Any] | None:
    monkeypatch.setattr(Profile, "program_facts", lambda _, rank: known)
    rows = api.analyse(profile, "diagnose", least=0).rows.to_dicts()
    return next((row for row in rows if row["id"] == finding), None)


def filled(kernels: list[Kernel]) -> list[Kernel]:
    """Deterministic mode: whatever a kernel will write is filled first."""
    return [k for kernel in kernels for k in ((FILL, 10, 4000), kernel)]


NETWORKS = {
    "convolutions": [(CONV, 60, 400), ("bn_fw_tr_1C11", 20, 128), ("relu_kernel", 9, 900)] * 5,
    "products": [(NORM, 20, 900), (PRODUCT, 60, 400), ("gelu_kernel", 9, 900)] * 4,
}


@pytest.mark.parametrize("network", NETWORKS)
def test_deterministic_algorithms(monkeypatch: pytest.MonkeyPatch, network: str) -> None:
    back: list[Kernel] = [("sm90_xmma_dgrad_implicit_gemm_bf16", 60, 400)] * 5
    kernels = NETWORKS[network]
    profile = job((filled(kernels), 1), (back, 2), ([(FUSED_ADAM, 50, 900)], 1))
    on = {"deterministic": True, "fills_memory": True}
    row = told(monkeypatch, profile, "slow-algorithms", settings=on)
    assert row is not None and row["cause"] == "certain"
    assert row["recoverable_ns"] == pytest.approx(len(kernels) * 10 * US, rel=0.15)
    for settings in (
        {},
        {"deterministic": False, "fills_memory": True},
        {"deterministic": True, "fills_memory": False},
    ):
        assert told(monkeypatch, profile, "slow-algorithms", settings=settings) is None


@pytest.mark.parametrize(("reserved", "says"), [(30, "so there is room to keep more"), (130, "there is little room")])
def test_whether_memory_allows_less_recomputation(monkeypatch: pytest.MonkeyPatch, reserved: int, says: str) -> None:
    block, back = checkpointed.BLOCK, checkpointed.BACKWARD
    tables = checkpointed.job((block * 3, 1), *(((*block[:-1], *back), 2) for _ in range(3)))
    memory = {"reserved_bytes": reserved * 10**9, "total_bytes": 141 * 10**9}
    row = told(monkeypatch, make(**tables), "recomputation", memory=memory)
    assert row is not None and says in row["evidence"]
    assert f"{reserved} GB of 141 are reserved at the peak" in row["evidence"]


def test_what_torch_does_not_know_is_left_out() -> None:
    cudnn = SimpleNamespace(deterministic=False, benchmark=True)
    backends = SimpleNamespace(cudnn=cudnn)
    old = SimpleNamespace(backends=backends, cuda=SimpleNamespace(is_available=lambda: False))
    assert facts(old) == {"settings": {"cudnn_deterministic": False, "cudnn_benchmark": True}}
    started = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, max_memory_reserved=lambda: 7)
    assert facts(SimpleNamespace(backends=backends, cuda=started))["memory"] == {"reserved_bytes": 7}


@pytest.mark.parametrize("hooks", [None, 5, {"0": 5}, {"0": {"memory": {"reserved_bytes": "much"}, "settings": 1}}])
def test_a_manifest_may_hold_anything(tmp_path: Path, hooks: object) -> None:
    folder = new.unpacked("lightning_cnn", "none", "torch", tmp_path)
    manifest = folder / "manifest.json"
    known = json.loads(manifest.read_text("utf-8"))
    known["captured"]["hooks"] = hooks
    manifest.write_text(json.dumps(known), "utf-8")
    found = api.open(folder, cache=False).program_facts(0)
    assert not found.get("settings") and not found.get("memory")
