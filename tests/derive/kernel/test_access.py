"""How kernels reach memory, and what their warps wait for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import stepscope
from measuring import measured
from stepscope.analyses.roofline.stalls import MEANING, stalls
from stepscope.derive.kernel.access import access, pattern_of
from stepscope.derive.kernel.measured import measured_kernels

DATA = Path(__file__).parents[2] / "data/ncu"
_BYTES = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"


@pytest.mark.parametrize(
    ("metrics", "uncoalesced", "conflicts"),
    [
        (
            {"memory_l2_theoretical_sectors_global": 320, "memory_l2_theoretical_sectors_global_ideal": 40},
            87.5,
            np.nan,
        ),
        ({_BYTES: 4.0, _SECTORS: 100}, 87.5, np.nan),
        ({"memory_l1_wavefronts_shared": 320, "memory_l1_wavefronts_shared_ideal": 10}, np.nan, 96.875),
        (
            {"l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 30}
            | {"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 40},
            np.nan,
            75.0,
        ),
        ({"memory_l1_wavefronts_shared": 0, "memory_l1_wavefronts_shared_ideal": 0}, np.nan, 0.0),
    ],
)
def test_what_a_better_pattern_would_save(metrics: dict[str, float], uncoalesced: float, conflicts: float) -> None:
    found = access(measured_kernels(measured({"k": metrics})))
    shares = (found.uncoalesced_pct[0], found.conflicts_pct[0])
    assert shares == pytest.approx((uncoalesced, conflicts), nan_ok=True)


def test_patterns_in_words() -> None:
    assert pattern_of(np.nan, np.nan) is None
    assert pattern_of(5.0, 9.0) is None
    assert pattern_of(87.5, 0.0) == "uncoalesced: 88 % of sectors wasted"
    assert pattern_of(50.0, 75.0) == "uncoalesced: 50 % of sectors wasted; bank conflicts: 75 % of wavefronts wasted"


def test_nsight_compute_names_the_same_kernels() -> None:
    """Its rule UncoalescedGlobalAccess fires on layer norms alone; it says 54 % of the sectors."""
    rows = stepscope.open(DATA / "raw.csv", cache=False).roofline(by="kernel", top=0).rows
    named = {row["name"]: row["access"] for row in rows.iter_rows(named=True) if row["access"]}
    assert named == {"vectorized_layer_norm_kernel": "uncoalesced: 54 % of sectors wasted"}


def test_stalls_are_shares_of_a_warp_s_cycles() -> None:
    stem = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
    counted = {stem.format(k): v for k, v in {"long_scoreboard": 6.0, "wait": 3.0, "selected": 1.0}.items()}
    assert stalls(measured_kernels(measured({"k": counted}))) == [[("long_scoreboard", 60.0), ("wait", 30.0)]]
    sampled = {"smsp__pcsamp_warps_issue_stalled_barrier": 30.0, "smsp__pcsamp_warps_issue_stalled_selected": 10.0}
    sampled["smsp__pcsamp_warps_issue_stalled_barrier_not_issued"] = 20.0
    assert stalls(measured_kernels(measured({"k": sampled}))) == [[("barrier", 75.0)]]


def test_every_reason_of_a_real_report_has_a_meaning() -> None:
    rows = stepscope.open(DATA / "raw.csv", cache=False).roofline(by="stall", top=0).rows
    assert rows["reason"].n_unique() >= 12
    assert set(rows["reason"]) <= set(MEANING)
    assert all(share < 100 for share in rows.group_by("kernel").agg(pl.col("share_pct").sum())["share_pct"])
