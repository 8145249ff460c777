"""The roofs above a kernel: peak rates of pipes and bandwidths, from the report itself.

A report says how many operations or bytes a cycle can have at most (`peak_sustained`), and how fast the clock was
while the kernel ran. The roof of tensor cores is the dense one: of the counters of a type, the largest peak among those
that say `sparsity_off`. A counter over all instructions has twice that where the hardware can skip zeros, and is no
roof for a product that does not. What a report does not say comes from the table of GPUs (`model/gpus.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from stepscope.derive.kernel.measured import Kernels, first, ratio
from stepscope.derive.kernel.work import TENSOR_OPS, Level, Pipe, Work
from stepscope.intervals.arrays import F64, Mask
from stepscope.model.gpus import PRECISIONS, gpu_of

_PEAK = r"\.peak_sustained"
_SM_CLOCK = tuple(f"{unit}__cycles_elapsed.avg.per_second" for unit in ("sm", "smsp", "gpc"))
_DRAM_RATE, DRAM_SHARE = "dram__bytes.sum.per_second", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
_FMA = {"fp64": ("dfma", 2), "fp32": ("ffma", 2), "fp16": ("hfma", 4)}
#: By level: bytes a cycle at most, and the clock of it.
_BANDWIDTH: dict[Level, tuple[tuple[str, str], ...]] = {
    "dram": (("dram__bytes.sum.peak_sustained", "dram__cycles_elapsed.avg.per_second"),),
    "l2": (
        ("derived__lts__lts2xbar_bytes.sum.peak_sustained", "lts__cycles_elapsed.avg.per_second"),
        ("lts__lts2xbar_bytes.sum.peak_sustained", "lts__cycles_elapsed.avg.per_second"),
        ("lts__t_bytes.sum.peak_sustained", "lts__cycles_elapsed.avg.per_second"),
    ),
    "l1": (
        ("derived__l1tex__lsu_writeback_bytes_mem_lgds.sum.peak_sustained", "l1tex__cycles_elapsed.avg.per_second"),
        ("derived__l1tex__lsu_writeback_bytes_mem_lgds.sum.peak_sustained", "sm__cycles_elapsed.avg.per_second"),
        ("l1tex__t_bytes.sum.peak_sustained", "l1tex__cycles_elapsed.avg.per_second"),
    ),
}


class Roof(Struct, frozen=True):
    """A peak per second by kernel, and of which kernels it is the table's, not the report's."""

    per_second: F64
    from_table: Mask


def sm_clock(kernels: Kernels) -> F64:
    """Cycles a second of the multiprocessors while each kernel ran."""
    return kernels.value(*_SM_CLOCK)


def compute_roof(kernels: Kernels, work: Work) -> Roof:
    """Operations a second at most, of a precision on a pipe."""
    peak_of = _tensor_peak if work.pipe == "tensor" else _vector_peak
    per_cycle = peak_of(kernels, work.precision)
    return _or_table(kernels, per_cycle * sm_clock(kernels), lambda name: _table_rate(name, work.precision, work.pipe))


def bandwidth_roof(kernels: Kernels, level: Level) -> Roof:
    """Bytes a second at most, of a level of memory."""
    found = first(*(kernels.value(peak) * kernels.value(clock) for peak, clock in _BANDWIDTH[level]))
    if level == "dram":  # a rate and the share of the peak that it is say the peak
        found = first(found, 100 * ratio(kernels.value(_DRAM_RATE), kernels.value(DRAM_SHARE)))
    return _or_table(kernels, found, _table_bandwidth if level == "dram" else lambda name: np.nan)


def _tensor_peak(kernels: Kernels, precision: str) -> F64:
    """Dense operations a cycle: the largest peak of a counter that says `sparsity_off`; of a type whose counters say
    nothing of sparsity at all, the largest of single instructions, else of the counter over all."""
    peaks = {match: v for match, v in kernels.named(TENSOR_OPS + _PEAK).items() if match["src"] == precision}
    dense = [v for match, v in peaks.items() if match["sparsity"] == "off"]
    single = [v for match, v in peaks.items() if match["sparsity"] is None and match["op"] is not None]
    whole = [v for match, v in peaks.items() if match["sparsity"] is None and match["op"] is None]
    return _largest(kernels, dense or single or whole)


def _vector_peak(kernels: Kernels, precision: str) -> F64:
    """Twice the fused instructions that can start in a cycle; those of half precision work on pairs."""
    if precision not in _FMA:
        return kernels.unknown()
    name, operations = _FMA[precision]
    stem = f"sass_thread_inst_executed_op_{name}_pred_on"
    derived = kernels.value(f"derived__sm__{stem}_x{operations}")
    peaks = kernels.value(f"sm__{stem}.sum.peak_sustained", f"smsp__{stem}.sum.peak_sustained")
    return first(derived, operations * peaks)


def _largest(kernels: Kernels, peaks: list[F64]) -> F64:
    return np.fmax.reduce(peaks) if peaks else kernels.unknown()


def _or_table(kernels: Kernels, peak: F64, of_gpu: Callable[[str | None], float]) -> Roof:
    """What the report says, else the table."""
    names = kernels.frame["gpu"].to_list()
    by_name = {name: of_gpu(name) for name in set(names)}
    table = np.array([by_name[name] for name in names], dtype=float)
    peak = np.where(peak > 0, peak, np.nan)  # no peak is nothing
    missing = np.isnan(peak)
    return Roof(np.where(missing, table, peak), missing & ~np.isnan(table))


def _table_rate(name: str | None, precision: str, pipe: Pipe) -> float:
    gpu = gpu_of(name)
    wanted = "fp64_tensor" if (precision, pipe) == ("fp64", "tensor") else precision
    key = next((known for known in PRECISIONS if known == wanted), None)
    if gpu is None or key is None or (pipe == "vector") != (key in ("fp64", "fp32")):
        return np.nan
    rate = gpu.rate(key)
    return np.nan if rate is None else rate * 1e12


def _table_bandwidth(name: str | None) -> float:
    gpu = gpu_of(name)
    return np.nan if gpu is None else gpu.gbps * 1e9
