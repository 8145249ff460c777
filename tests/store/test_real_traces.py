"""Real traces: what the cache gives is what the files give, and their folder stays as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

import stepscope
from stepscope.model.schema import TABLES
from stepscope.store import flush

TRACES = [
    "h200/moe4/overlapped.sqlite",
    "h200/moe4/*.json.gz",
    "h200/payloads/overlapped_pqtdir",
    "h200/train/eager.pt.trace.json.gz",
    "public/a100_cuda_graphs.sqlite",
    "public/mi300x_4ranks_merged_nccl.json.gz",
    "public/titan_no_kernel_table.sqlite",
]


def everything(profile: Any) -> dict[str, Any]:
    frames = {name: profile.table(name, detail=True) for name in TABLES}
    flush()
    return {**frames, "ranks": profile.ranks}


@pytest.mark.parametrize("trace", TRACES)
def test_cold_and_warm_are_as_uncached(
    trace: str, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE_DIR", str(tmp_path))
    path = shared / "traces" / trace
    before = {p: p.stat().st_mtime_ns for p in path.parent.rglob("*")}
    plain = stepscope.open(path, cache=False)
    expected = everything(plain)
    for _ in range(2):
        profile = stepscope.open(path)
        found = everything(profile)
        for name, frame in expected.items():
            assert_frame_equal(found[name], frame)
        assert profile.sources == plain.sources
        assert sorted(profile.notes) == sorted(plain.notes)
        assert profile.names.to_list() == plain.names.to_list()
    assert {p: p.stat().st_mtime_ns for p in path.parent.rglob("*")} == before
