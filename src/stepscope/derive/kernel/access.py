"""How a kernel reaches memory: sectors of global memory and wavefronts of shared memory that are more than needed.

Accesses of a warp that are apart from each other (uncoalesced) touch more sectors of 32 bytes than their bytes need;
those that fall on the same bank of shared memory (a bank conflict) take more than one wavefront. Both are counted per
instruction, against what the best pattern would need (`memory_l2_theoretical_sectors_global`, `…_ideal`); where a
report lacks these, by the bytes used per sector and by the hardware's count of conflicts.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from stepscope.derive.kernel.measured import Kernels, first, ratio
from stepscope.derive.kernel.work import SECTOR_BYTES
from stepscope.intervals.arrays import F64
from stepscope.model.threshold import Threshold

EXCESS = Threshold(
    10.0,
    "% of the sectors or wavefronts",
    "fewer that a better access pattern would save are not worth a name; planted strides save 70 % and more",
    ("tests/derive/kernel/test_access.py",),
)


_BYTES_PER_SECTOR = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}.ratio"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"


class Access(Struct, frozen=True):
    """Shares in per cent, by kernel, NaN where the report does not say."""

    #: sectors of global memory that a better pattern would save
    uncoalesced_pct: F64
    #: wavefronts of shared memory that a better pattern would save
    conflicts_pct: F64


def access(kernels: Kernels) -> Access:
    sectors = kernels.value("memory_l2_theoretical_sectors_global")
    ideal = kernels.value("memory_l2_theoretical_sectors_global_ideal")
    uncoalesced = _share(sectors - ideal, sectors)
    wavefronts = kernels.value("memory_l1_wavefronts_shared")
    conflicts = _share(wavefronts - kernels.value("memory_l1_wavefronts_shared_ideal"), wavefronts)
    counted = _share(
        kernels.value("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"),
        kernels.value("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"),
    )
    return Access(first(uncoalesced, _by_sector(kernels)), first(conflicts, counted))


def pattern_of(uncoalesced_pct: float, conflicts_pct: float) -> str | None:
    """What is wrong with the pattern, in words; None where nothing is."""
    named = []
    if uncoalesced_pct >= EXCESS.value:
        named.append(f"uncoalesced: {uncoalesced_pct:.0f} % of sectors wasted")
    if conflicts_pct >= EXCESS.value:
        named.append(f"bank conflicts: {conflicts_pct:.0f} % of wavefronts wasted")
    return "; ".join(named) or None


def _by_sector(kernels: Kernels) -> F64:
    """From the bytes used of a sector, over loads and stores."""
    wasted, all_of_them = np.zeros(len(kernels)), np.zeros(len(kernels))
    for op in ("ld", "st"):
        used, sectors = kernels.value(_BYTES_PER_SECTOR.format(op)), kernels.value(_SECTORS.format(op))
        known = ~np.isnan(used) & (used > 0) & ~np.isnan(sectors)
        all_of_them += np.where(known, sectors, 0)
        wasted += np.where(known, sectors * (1 - np.minimum(used, SECTOR_BYTES) / SECTOR_BYTES), 0)
    return _share(wasted, all_of_them, nothing=np.nan)


def _share(part: F64, whole: F64, nothing: float = 0.0) -> F64:
    """In per cent; of nothing, `nothing`."""
    return np.where(whole == 0, nothing, 100 * ratio(part, whole))
