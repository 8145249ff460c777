"""The work of a kernel: operations by precision and pipe, and bytes at each level of memory.

Tensor operations are those that the hardware counted (`sm__ops_path_tensor_…`), all instructions together; vector
operations are counted instructions: an add or a multiplication is one, a fused one two, and instructions of half
precision work on pairs, as Nsight Compute's own roofline has it. Where only a rate per cycle is in the report, the
count is the rate times the cycles of that kernel.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct

from stepscope.derive.kernel.measured import Kernels, first, ratio
from stepscope.intervals.arrays import F64

Pipe = Literal["tensor", "vector"]
Level = Literal["dram", "l2", "l1"]
LEVEL_NAMES: dict[Level, str] = {"dram": "DRAM", "l2": "L2", "l1": "L1"}
LEVELS = tuple(LEVEL_NAMES)
SECTOR_BYTES = 32

#: `sm__ops_path_tensor_src_bf16_dst_fp32.sum`, `sm__ops_path_tensor_op_hgmma_src_fp16_sparsity_off.sum`
TENSOR_OPS = (
    r"sm__ops_path_tensor_(?:op_(?P<op>[a-z0-9]+)_)?src_(?P<src>[a-z]+\d+(?:_[a-z]*\d*)*?)"
    r"(?:_dst_(?P<dst>[a-z]+\d+))?(?:_sparsity_(?P<sparsity>on|off))?\.sum"
)
_VECTOR = r"smsp?__sass_thread_inst_executed_op_(?P<type>[dfh])(?P<op>add|mul|fma)_pred_on\.sum"
_PER_CYCLE = r"\.per_cycle_elapsed"
OF_PEAK = r"\.(?:avg|sum)\.pct_of_peak_sustained_elapsed"
_PRECISION = {"d": "fp64", "f": "fp32", "h": "fp16"}
#: Operations of an instruction of a thread.
_OPERATIONS = {"add": 1, "mul": 1, "fma": 2}
_PAIRS = {"h": 2}
#: Kinds of tensor counters, from the one that says most at once: over all instructions, with and without sparsity.
_COUNTERS = ((True, True), (True, False), (False, True), (False, False))


class Work(Struct, frozen=True):
    """Operations of one precision on one pipe, by kernel: NaN where the report does not say."""

    precision: str
    pipe: Pipe
    operations: F64

    @property
    def label(self) -> str:
        return f"{self.precision} {self.pipe}"


def work_of(kernels: Kernels) -> list[Work]:
    """Every precision and pipe that the reports have counters of, whether used or not."""
    return [*_tensor(kernels), *_vector(kernels)]


def _tensor(kernels: Kernels) -> list[Work]:
    """By type of the factors: the counter over all instructions, else the sum over those of single ones."""
    counts: dict[str, dict[tuple[bool, bool], F64]] = {}
    for match, values in kernels.named(TENSOR_OPS).items():
        # Counters of one kind are added up (dense and sparse, hgmma and hmma); those of two kinds say the same twice.
        kind = (match["op"] is None, match["sparsity"] is None)
        by_kind = counts.setdefault(match["src"], {})
        by_kind[kind] = by_kind[kind] + values if kind in by_kind else values
    return [Work(src, "tensor", first(*(by[kind] for kind in _COUNTERS if kind in by))) for src, by in counts.items()]


def _vector(kernels: Kernels) -> list[Work]:
    cycles = kernels.value("smsp__cycles_elapsed.avg", "sm__cycles_elapsed.avg")
    clock = kernels.value("smsp__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second")
    cycles = first(cycles, clock * kernels.duration_ns / 1e9)
    counts: dict[tuple[str, str], F64] = {}
    for match, values in kernels.named(_VECTOR).items():
        counts[match["type"], match["op"]] = values
    for match, rate in kernels.named(_VECTOR + _PER_CYCLE).items():
        key = match["type"], match["op"]
        counts[key] = first(counts.get(key, kernels.unknown()), np.round(rate * cycles))
    works = []
    for letter, precision in _PRECISION.items():
        parts = [_OPERATIONS[op] * _PAIRS.get(letter, 1) * v for (t, op), v in counts.items() if t == letter]
        if parts:
            works.append(Work(precision, "vector", np.sum(parts, axis=0)))
    return works


def bytes_of(kernels: Kernels) -> dict[Level, F64]:
    """Bytes that a kernel moved at each level: from and to DRAM, from L2 to the SMs, from L1 to registers."""
    seconds = kernels.duration_ns / 1e9
    dram = first(
        kernels.value("dram__bytes.sum"),
        kernels.value("dram__bytes_read.sum") + kernels.value("dram__bytes_write.sum"),
        kernels.value("dram__bytes.sum.per_second") * seconds,
    )
    l2 = first(
        kernels.value("derived__lts__lts2xbar_bytes.sum", "lts__lts2xbar_bytes.sum"),
        kernels.value("derived__lts__lts2xbar_bytes.sum.per_second") * seconds,
        kernels.value("lts__t_bytes.sum"),
        SECTOR_BYTES * kernels.value("lts__t_sectors.sum"),
    )
    l1 = first(
        kernels.value("derived__l1tex__lsu_writeback_bytes_mem_lgds.sum", "l1tex__t_bytes.sum"),
        kernels.value("derived__l1tex__lsu_writeback_bytes_mem_lgds.sum.per_second") * seconds,
    )
    return {"dram": np.round(dram), "l2": np.round(l2), "l1": np.round(l1)}


def shared_ns(kernels: Kernels) -> F64:
    """How long the accesses to shared memory would take without bank conflicts: one wavefront a cycle and SM."""
    wavefronts = kernels.value("memory_l1_wavefronts_shared_ideal")
    cycles = kernels.value("launch__sm_count") * kernels.value("sm__cycles_elapsed.avg.per_second")
    return 1e9 * ratio(wavefronts, cycles)


#: How busy a pipe was: time at its peak also where operations were not counted.
_PIPES = {
    "tensor pipe": rf"sm__pipe_tensor_cycles_active{OF_PEAK}",
    "fp64 pipe": rf"sm__pipe_fp64_cycles_active{OF_PEAK}",
    "fp32 pipe": rf"sm__pipe_fma_cycles_active{OF_PEAK}",
}


def pipe_ns(kernels: Kernels) -> dict[str, F64]:
    """By pipe: how long its work would take at its peak, from the share of time that it was busy."""
    times = {}
    for pipe, pattern in _PIPES.items():
        shares = list(kernels.named(pattern).values())
        if shares:
            times[pipe] = np.fmax.reduce(shares) / 100 * kernels.duration_ns
    return times
