"""The roofline of every measured kernel: its work, its roofs, and how long it would take at the nearest of them.

A kernel can be no faster than its operations at the peak of their pipe, nor than its bytes at the bandwidth of each
level of memory, nor than its accesses to shared memory without bank conflicts. The longest of these times is its time
at the roof; pipes and levels work side by side.

The roofs are peak rates of pipes and bandwidths, from the report itself. It says how many operations or bytes a cycle
can have at most (`peak_sustained`), and how fast the clock was while the kernel ran. The roof of tensor cores is the
dense one: of the counters of a type, the largest peak among those that say `sparsity_off`. A counter over all
instructions has twice that where the hardware can skip zeros, and is not a roof for a product that does not. What a
report does not say comes from the table of GPUs (`model/gpus.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from stepscope.derive.kernel.measured import MOST_OF_PEAK, Kernels, first, measured_kernels, ratio
from stepscope.derive.kernel.work import (
    LEVEL_NAMES,
    LEVELS,
    TENSOR_OPS,
    Level,
    Pipe,
    Work,
    bytes_of,
    pipe_ns,
    shared_ns,
    work_of,
)
from stepscope.intervals.arrays import F64, I64, Mask
from stepscope.model.gpus import PRECISIONS, gpu_of
from stepscope.model.profile import Profile
from stepscope.model.threshold import Threshold

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
    peak_rate = first(*(kernels.value(peak) * kernels.value(clock) for peak, clock in _BANDWIDTH[level]))
    if level == "dram":  # a rate and the share of the peak that it is say the peak
        peak_rate = first(peak_rate, 100 * ratio(kernels.value(_DRAM_RATE), kernels.value(DRAM_SHARE)))
    return _or_table(kernels, peak_rate, _table_bandwidth if level == "dram" else lambda name: np.nan)


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


_LEAST_PART = Threshold(
    0.01,
    "% of the kernel's time",
    "arithmetic that would take less at its peak is not a reason to draw the kernel by it",
    ("tests/derive/kernel/test_roofline_maths.py",),
)


class Roofline(Struct, frozen=True):
    """Arrays by kernel."""

    kernels: Kernels
    works: list[Work]
    peaks: list[Roof]
    bytes: dict[Level, F64]
    bandwidths: dict[Level, Roof]
    #: index, among `works`, of what takes longest at its peak: the precision that a kernel is drawn by; -1 for none
    main: I64
    #: the time at the nearest roof, NaN where no roof or no work is known
    roof_ns: F64
    #: what that roof is: `bf16 tensor`, `DRAM`
    roof: list[str | None]
    #: counts of kernels that are more than their GPU does in the time: treated as unknown
    beyond: int = 0

    def of_main(self, values: list[F64]) -> F64:
        """Of arrays by precision, what each kernel's main one has."""
        if not values:
            return self.kernels.unknown()
        table = np.array(values)
        of_main: F64 = np.where(self.main >= 0, table[self.main, np.arange(len(self.kernels))], np.nan)
        return of_main

    @property
    def operations(self) -> F64:
        """Of the main precision."""
        return self.of_main([work.operations for work in self.works])

    @property
    def peak(self) -> F64:
        """Operations a second of the main precision at most."""
        return self.of_main([roof.per_second for roof in self.peaks])

    @property
    def reached(self) -> F64:
        """The part of its roof that a kernel reaches: its time there over the time that it takes."""
        return ratio(self.roof_ns, self.kernels.duration_ns)


def roofline_of(profile: Profile) -> Roofline:
    """The roofline of all measured kernels of the profile."""
    kernels = profile.once(measured_kernels)
    works = work_of(kernels)
    peaks = [compute_roof(kernels, work) for work in works]
    bandwidths: dict[Level, Roof] = {level: bandwidth_roof(kernels, level) for level in LEVELS}
    moved = bytes_of(kernels)
    # A report of few counters has the share of the peak alone; times the peak, that is the bytes.
    share = kernels.value(DRAM_SHARE) / 100
    by_share = np.round(share * bandwidths["dram"].per_second * kernels.duration_ns / 1e9)
    moved["dram"] = first(moved["dram"], by_share)
    most = MOST_OF_PEAK.value / 100 * kernels.duration_ns
    at_peak = [_ns(work.operations, roof.per_second) for work, roof in zip(works, peaks, strict=True)]
    at_level = [_ns(moved[level], bandwidths[level].per_second) for level in LEVELS]
    beyond = sum(int((ns > most).sum()) for ns in (*at_peak, *at_level))
    works = [
        replace(work, operations=np.where(ns > most, np.nan, work.operations))
        for work, ns in zip(works, at_peak, strict=True)
    ]
    moved |= {level: np.where(ns > most, np.nan, moved[level]) for level, ns in zip(LEVELS, at_level, strict=True)}
    at_peak, at_level = ([np.where(ns > most, np.nan, ns) for ns in times] for times in (at_peak, at_level))
    # Where operations were not counted, the share of time that a pipe was busy says the same of it.
    uncounted = np.isnan(np.array(at_peak)).all(axis=0) if works else np.ones(len(kernels), dtype=bool)
    at_pipe = {pipe: np.where(uncounted, ns, np.nan) for pipe, ns in pipe_ns(kernels).items()}
    shared = shared_ns(kernels)
    times = np.array([*at_peak, *at_level, np.where(shared > most, np.nan, shared), *at_pipe.values()])
    levels = [LEVEL_NAMES[level] for level in LEVELS]
    labels = [*(work.label for work in works), *levels, "shared memory", *at_pipe]
    # Bandwidth alone is not a fair roof: a GEMM is rightly far from it.
    computing = [*at_peak, *at_pipe.values()]
    known = ~np.isnan(np.array(computing)).all(axis=0) if computing else np.zeros(len(kernels), dtype=bool)
    nearest = np.where(known, np.argmax(np.nan_to_num(times, nan=-1.0), axis=0), -1)
    roof_ns = np.where(known, times[nearest, np.arange(len(kernels))], np.nan)
    return Roofline(
        kernels,
        works,
        peaks,
        moved,
        bandwidths,
        _main(kernels, at_peak),
        roof_ns,
        [labels[at] if at >= 0 else None for at in nearest.tolist()],
        beyond,
    )


def _main(kernels: Kernels, at_peak: list[F64]) -> I64:
    """What takes longest at its peak; -1 where a kernel does no arithmetic that is worth the name."""
    if not at_peak:
        return np.full(len(kernels), -1)
    times = np.nan_to_num(np.array(at_peak), nan=-1.0)
    most: I64 = np.argmax(times, axis=0)
    return np.where(times.max(axis=0) > _LEAST_PART.share * np.nan_to_num(kernels.duration_ns), most, -1)


def _ns(amount: F64, per_second: F64) -> F64:
    return 1e9 * ratio(amount, per_second)
