"""The roofline of every measured kernel: its work, its roofs, and how long it would take at the nearest of them.

A kernel can be no faster than its operations at the peak of their pipe, nor than its bytes at the bandwidth of each
level of memory, nor than its accesses to shared memory without bank conflicts. The longest of these times is its time
at the roof; pipes and levels work side by side.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from stepscope.derive.kernel.measured import MOST_OF_PEAK, Kernels, first, measured_kernels, ratio
from stepscope.derive.kernel.roofs import DRAM_SHARE, Roof, bandwidth_roof, compute_roof
from stepscope.derive.kernel.work import LEVEL_NAMES, LEVELS, Level, Work, bytes_of, pipe_ns, shared_ns, work_of
from stepscope.intervals.arrays import F64, I64
from stepscope.model.profile import Profile
from stepscope.model.threshold import Threshold

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
        found: F64 = np.where(self.main >= 0, table[self.main, np.arange(len(self.kernels))], np.nan)
        return found

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
