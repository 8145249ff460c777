"""Real traces of several ranks: the first finding is what a person would name (docs/diagnoses.md says why)."""

from __future__ import annotations

from pathlib import Path

import pytest

from marks import slow_unless
from stepscope import api

#: trace -> the first findings, and what the first must say
FIRST: dict[str, tuple[list[str], str]] = {
    "h200/moe4/overlapped.sqlite": (["exposed-communication"] * 2, "99 % of the time in the experts' all-to-all"),
    "h200/moe4/overlapped.rank*.pt.trace.json.gz": (["late-node"], "rank 2 begins the step 1.11 s after the others"),
    "h200/moe4/serialized.sqlite": (["serialized-communication"], "waited for immediately"),
    "h200/moe4mps/overlapped.sqlite": (["exposed-communication"], "send/recv"),
    # What was planted, though transfers over the loopback of a shared GPU take more: a cause comes before its effect.
    "h200/moe4mps/serialized.sqlite": (["serialized-communication", "exposed-communication"], "waited for immediately"),
    "h200/moe4mps/overlapped.rank*.pt.trace.json.gz": (["exposed-communication"], "send/recv"),
    "h200/payloads/overlapped.sqlite": (["exposed-communication"], "67.1 MB each at 2 GB/s"),
    "public/dlrm8/dlrm_kineto": (["launch-bound"], "launch"),
    "public/h100x2_before.sqlite": (["host-sync", "unfused-kernels"], "pageable"),
    "public/h100x2_after.sqlite": (["host-sync", "tiny-kernels"], "pageable"),
    "public/world128.rank*.json.gz": (["launch-bound"], "launch"),
    "public/mi300x_4ranks_merged_nccl.json.gz": (["late-node"], "rank 3"),
}


@pytest.mark.parametrize(
    "trace", slow_unless(("h200/moe4/overlapped.sqlite", "public/h100x2_after.sqlite").__contains__, FIRST)
)
def test_the_first_findings_of_ranks(trace: str, shared: Path) -> None:
    result = api.analyse(api.open(str(shared / "traces" / trace)), "diagnose")
    ids, says = FIRST[trace]
    rows = result.rows.to_dicts()
    named = [r["id"] for r in rows if r["id"] != "unexplained"]
    assert named[: len(ids)] == ids, result.summary["statement"]
    text = f"{rows[0]['title']} {rows[0]['evidence']}"
    assert any(part in text for part in says.split("|"))
    assert rows[0]["recoverable_ns"] <= result.summary["step_ns"]
