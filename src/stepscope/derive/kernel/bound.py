"""What bounds a kernel: bandwidth, compute, latency or overhead, and the figure that decides.

By what share of its peak each unit was busy, as Nsight Compute's section on the speed of light has it
(`sm__throughput`, `gpu__compute_memory_throughput`). Where neither compute nor memory is busy, nothing in the GPU is
the limit: the kernel waits (latency), or it is over before the multiprocessors are filled (overhead).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct

from stepscope.derive.kernel.measured import Kernels, measured_kernels, ratio
from stepscope.derive.kernel.work import OF_PEAK
from stepscope.model.profile import Profile
from stepscope.model.threshold import Threshold

BUSY = Threshold(
    60.0,
    "% of peak",
    "where neither compute nor memory reaches it, Nsight Compute speaks of latency: nothing in the GPU is the limit",
    ("tests/derive/kernel/test_bound.py", "h200/ncu/ncu_full_details.csv"),
)
BALANCED = Threshold(
    10.0,
    "% of peak",
    "compute and memory that are closer to each other limit the kernel together, as Nsight Compute has it",
    ("tests/derive/kernel/test_bound.py",),
)
HIGH = Threshold(
    80.0,
    "% of peak",
    "from there on a unit is the limit, however small the grid is, as Nsight Compute has it",
    ("tests/derive/kernel/test_bound.py", "h200/ncu/ncu_full_details.csv"),
)
STARTED = Threshold(
    50.0,
    "% of the kernel's time",
    "where even the busiest multiprocessor works for less, most of the time goes to starting and ending the kernel",
    ("tests/derive/kernel/test_bound.py",),
)


BoundBy = Literal["bandwidth", "compute", "latency", "overhead"]

COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
#: Units that compute is made of, by the metric that says how busy each was.
_COMPUTE_UNITS = {
    rf"sm__pipe_tensor\w*_cycles_active{OF_PEAK}": "tensor pipe",
    rf"sm__pipe_fp64_cycles_active{OF_PEAK}": "fp64 pipe",
    rf"sm__pipe_fma\w*_cycles_active{OF_PEAK}": "fp32 pipe",
    rf"sm__pipe_alu_cycles_active{OF_PEAK}": "integer and logic pipe",
    rf"sm__inst_executed_pipe_xu{OF_PEAK}": "special functions",
    rf"sm__inst_executed_pipe_lsu{OF_PEAK}": "load and store instructions",
    rf"sm__(?:inst_executed|issue_active|inst_issued){OF_PEAK}": "instruction issue",
}
_MEMORY_UNITS = {
    rf"(?:gpu__dram_throughput|dram__cycles_active|dram__throughput){OF_PEAK}": "DRAM",
    rf"lts__\w+{OF_PEAK}": "L2",
    rf"l1tex__m_\w+{OF_PEAK}": "L2 to L1",
    rf"l1tex__data_bank_\w+{OF_PEAK}": "L1 and shared memory",
    rf"l1tex__(?!m_|data_bank)\w+{OF_PEAK}": "L1 and shared memory",
}
#: Sums of other metrics, which say nothing more.
_SUMS = r"(?:lts|l1tex)__throughput\."


class Bound(Struct, frozen=True):
    """Why a kernel takes as long as it does."""

    by: BoundBy | None
    #: the unit that is busiest, of those that decide
    unit: str | None
    #: the sentence with the figures that decide
    why: str
    compute_pct: float | None
    memory_pct: float | None


def bounds_of(profile: Profile) -> list[Bound]:
    """One per measured kernel of the profile."""
    return bounds(profile.once(measured_kernels))


def bounds(kernels: Kernels) -> list[Bound]:
    """One per kernel."""
    compute, memory = kernels.value(COMPUTE), kernels.value(MEMORY)
    unit_c, unit_m = _busiest(kernels, _COMPUTE_UNITS), _busiest(kernels, _MEMORY_UNITS)
    waves = kernels.value("launch__waves_per_multiprocessor")
    elapsed = kernels.value("sm__cycles_elapsed.max", "gpc__cycles_elapsed.max")
    worked = 100 * ratio(kernels.value("sm__cycles_active.max"), elapsed)
    figures = (values.tolist() for values in (compute, memory, waves, worked))
    return [_bound(*row) for row in zip(*figures, unit_c, unit_m, strict=True)]


def _bound(
    compute: float, memory: float, waves: float, worked: float, of_compute: str | None, of_memory: str | None
) -> Bound:
    if np.isnan(compute) or np.isnan(memory):
        return Bound(None, None, "the report has no section SpeedOfLight", None, None)
    both = f"compute {compute:.1f} %, memory {memory:.1f} % of peak"
    by: BoundBy = "compute" if compute >= memory else "bandwidth"
    unit = of_compute if compute >= memory else of_memory
    most = max(compute, memory)
    why = f"{both} ({unit})" if unit else both
    if most < HIGH.value and waves < 1:
        by, unit, why = "latency", "grid", f"the grid fills {100 * waves:.0f} % of one wave: too few blocks; {both}"
    elif most < BUSY.value:
        by, unit, why = "latency", None, f"neither reaches {BUSY.value:.0f} %: {both}"
    elif abs(compute - memory) < BALANCED.value and most < HIGH.value:
        why = f"both about equally: {why}"
    if by == "latency" and worked < STARTED.value:
        by, unit = "overhead", "launch"
        why = f"even the busiest multiprocessor works for {worked:.0f} % of the time only; {both}"
    return Bound(by, unit, why, compute, memory)


def _busiest(kernels: Kernels, units: dict[str, str]) -> list[str | None]:
    """By kernel: the unit with the largest share of its peak."""
    names, shares = [], []
    for pattern, unit in units.items():
        for values in kernels.named(rf"(?!{_SUMS}){pattern}").values():
            names.append(unit)
            shares.append(np.nan_to_num(values, nan=-1.0))
    if not shares:
        return [None] * len(kernels)
    table = np.array(shares)
    known = table.max(axis=0) >= 0
    return [
        names[at] if there else None for at, there in zip(table.argmax(axis=0).tolist(), known.tolist(), strict=True)
    ]
