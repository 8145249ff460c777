"""Real traces of one process, or without communication: the first finding is what a person would name.

The reasoning for each is in docs/diagnoses.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from marks import slow_unless
from stepscope import api
from stepscope.errors import CannotAnswer

#: trace -> first finding (None: a clean bill), and what its title or evidence must say
FIRST: dict[str, tuple[str | None, str]] = {
    "h200/train/eager.sqlite": ("data-stall", "`data`"),
    "h200/train/slow_dataloader.sqlite": ("data-stall", "`data`"),
    "h200/train/eager.pt.trace.json.gz": ("data-stall", "mostly in `aten::randn`"),
    "h200/train/compiled.pt.trace.json.gz": ("data-stall", "mostly in `aten::randn`"),
    "h200/moe4mps/cut_off.sqlite": ("exposed-communication", "send/recv"),
    "public/a100_cuda_graphs.sqlite": (None, ""),
    "public/a100_lm2.7b_nvtx.sqlite": ("no-tensor-cores", "ampere_sgemm"),
    "public/a100_nccl_metadata_world2.json.gz": ("launch-bound", "of host time"),
    "public/a100_saxpy_mpi.rank*.sqlite": ("data-stall", "in MPI calls"),
    "public/h100_qwen.json.gz": ("unfused-kernels", "chains"),
    "public/mi300x_qwen.json.gz": ("unfused-kernels", "chains"),
    "public/puzzler_cudagraph.json.gz": ("gc-pause", "18 ms"),  # of the 4 % that follow start-up
    "public/puzzler_d2h_sync.json.gz": ("host-sync", ".item()"),
    "public/rtx5000ada_windows.sqlite": ("launch-bound", ""),  # of what follows start-up
    "public/t4_power_iteration.sqlite": ("data-stall", "`IO 80`"),
}


@pytest.mark.parametrize("trace", slow_unless(lambda trace: trace.endswith(".sqlite") and "moe4" not in trace, FIRST))
def test_the_first_finding(trace: str, shared: Path) -> None:
    result = api.analyse(api.open(str(shared / "traces" / trace)), "diagnose")
    finding, says = FIRST[trace]
    rows = result.rows.to_dicts()
    if finding is None:
        assert rows == []
        lost = 100 - float(api.analyse(api.open(str(shared / "traces" / trace)), "breakdown").summary["compute_pct"])
        assert result.summary["statement"].startswith("Nothing above" if lost < 2 else "No single cause above")
        return
    assert rows and rows[0]["id"] == finding, [(r["id"], r["share_pct"]) for r in rows]
    assert says in f"{rows[0]['title']} {rows[0]['evidence']}"
    assert 0 < len(rows[0]["where"]) <= 10
    assert rows[0]["recoverable_ns"] <= result.summary["step_ns"]


def test_slow_loading_is_told_from_loading(shared: Path) -> None:
    """The same program with 30 ms more per batch: the findings differ as the `data` ranges of their median steps do."""
    eager, slow = (
        api.analyse(api.open(shared / "traces/h200/train" / f"{name}.sqlite"), "diagnose").rows.to_dicts()[0]
        for name in ("eager", "slow_dataloader")
    )
    data = 169_215_610 - 122_422_708  # of step 7 and of step 6, read off the files
    assert slow["recoverable_ns"] - eager["recoverable_ns"] == pytest.approx(data, rel=0.02)
    assert data > 30e6


def test_nothing_to_judge(shared: Path) -> None:
    with pytest.raises(CannotAnswer, match="no GPU activity"):
        api.analyse(api.open(shared / "traces/public/titan_no_kernel_table.sqlite"), "diagnose")
