"""What bounds a kernel: against Nsight Compute's own words, and figure by figure."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import stepscope
from measuring import measured
from stepscope.derive.kernel.bound import COMPUTE, MEMORY, bounds
from stepscope.derive.kernel.measured import measured_kernels

DATA = Path(__file__).parents[2] / "data/ncu"
#: How the rule SOLBottleneck begins, and what bounds the kernel then.
SAID = {
    "Compute is more heavily utilized": {"compute"},
    "Memory is more heavily utilized": {"bandwidth"},
    "This workload exhibits low compute throughput": {"latency", "overhead"},
    "This kernel grid is too small": {"latency", "overhead"},
    "This workload is utilizing greater than 80": {"compute", "bandwidth"},
    "Compute and Memory are well-balanced": {"compute", "bandwidth"},
}


def _agreed(raw: Path, details: Path) -> int:
    """How many kernels of the raw page are bound by what the details page of the same report says."""
    judged = stepscope.open(raw, cache=False).roofline(by="kernel", top=0).rows
    other = stepscope.open(details, cache=False)
    advice = other.table("advice")
    advice = advice.with_columns(rule=other.names.gather(advice["rule"]), text=other.names.gather(advice["text"]))
    said = dict(advice.filter(pl.col("rule") == "SOLBottleneck").select("kernel", "text").iter_rows())
    metrics = other.table("metrics")
    metrics = metrics.with_columns(name=other.names.gather(metrics["name"]))
    shares = {
        name: dict(metrics.filter(pl.col("name") == name).select("kernel", "value").iter_rows())
        for name in (COMPUTE, MEMORY)
    }
    for row in judged.iter_rows(named=True):
        allowed = next(found for begin, found in SAID.items() if said[row["kernel"]].startswith(begin))
        assert row["bound"] in allowed, row
        compute, memory = (shares[name][row["kernel"]] for name in (COMPUTE, MEMORY))
        if row["bound"] in ("compute", "bandwidth"):
            assert row["bound"] == ("compute" if compute > memory else "bandwidth"), row
        assert (row["compute_pct"], row["memory_pct"]) == pytest.approx((compute, memory), abs=0.006)
    return judged.height


def test_as_nsight_compute_says() -> None:
    assert _agreed(DATA / "raw.csv", DATA / "details.csv") == 7


def test_as_nsight_compute_says_of_all_forty(shared: Path) -> None:
    folder = shared / "traces/h200/ncu"
    assert _agreed(folder / "ncu_full_raw.csv", folder / "ncu_full_details.csv") == 40


def test_either_page_gives_the_same_bound() -> None:
    raw, details = (
        stepscope.open(DATA / f"{page}.csv", cache=False).roofline(by="kernel", top=0).rows
        for page in ("raw", "details")
    )
    assert raw["bound"].to_list() == details["bound"].to_list()


@pytest.mark.parametrize(
    ("metrics", "by", "unit"),
    [
        ({COMPUTE: 90.0, MEMORY: 20.0}, "compute", None),
        ({COMPUTE: 20.0, MEMORY: 90.0}, "bandwidth", None),
        ({COMPUTE: 65.0, MEMORY: 70.0}, "bandwidth", None),
        ({COMPUTE: 30.0, MEMORY: 40.0}, "latency", None),
        ({COMPUTE: 65.0, MEMORY: 40.0, "launch__waves_per_multiprocessor": 0.5}, "latency", "grid"),
        ({COMPUTE: 85.0, MEMORY: 40.0, "launch__waves_per_multiprocessor": 0.5}, "compute", None),
        (
            {COMPUTE: 5.0, MEMORY: 4.0, "sm__cycles_active.max": 900, "sm__cycles_elapsed.max": 3000},
            "overhead",
            "launch",
        ),
        ({COMPUTE: 5.0, MEMORY: 4.0, "sm__cycles_active.max": 2900, "sm__cycles_elapsed.max": 3000}, "latency", None),
        (
            {COMPUTE: 20.0, MEMORY: 90.0, "dram__cycles_active.avg.pct_of_peak_sustained_elapsed": 90.0}
            | {"lts__t_sectors.avg.pct_of_peak_sustained_elapsed": 40.0},
            "bandwidth",
            "DRAM",
        ),
        ({COMPUTE: 20.0}, None, None),
    ],
)
def test_by_the_figures(metrics: dict[str, float], by: str | None, unit: str | None) -> None:
    found = bounds(measured_kernels(measured({"k": metrics})))[0]
    assert (found.by, found.unit) == (by, unit)
