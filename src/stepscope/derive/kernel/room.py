"""How many warps a launch leaves room for on a multiprocessor: arithmetic on blocks, registers and shared memory.

Any trace with the shapes of launches tells, as Nsight Compute's section Occupancy does, which measures (`occupancy`).
Shared memory is taken to be as large as the chip allows: the driver gives a kernel that needs it so much.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.kernel.occupancy import FULL, LIMITER, THEORETICAL
from stepscope.derive.rank.data import RankData
from stepscope.intervals.arrays import F64, I64
from stepscope.model.gpus import Chip, chip_of, gpu_of
from stepscope.model.profile import Profile

_WARP, _REGISTERS, _UNIT, _PARTS, _SHARED_UNIT = 32, 65536, 256, 4, 128
#: Fewer round to 0 % of the largest GPU.
_FEW_WARPS = 64
_BY = ("block size", "registers", "shared memory", "blocks per multiprocessor")


def room_of(data: RankData, ops: I64) -> pl.DataFrame:
    """Per op: the most warps that its launch allows, of those there is room for, and what allows no more."""
    chip = chip_of(data.profile.ranks.filter(pl.col("rank") == data.rank)["gpu"][0])
    if chip is None:
        types = {THEORETICAL: pl.Float64, LIMITER: pl.String}
        return pl.select(pl.repeat(None, len(ops), dtype=of).alias(name) for name, of in types.items())
    return held(data.profile.once(_launches)[data.rank][ops], chip)


def estimated(data: RankData, ops: I64, told: pl.Series) -> pl.Series:
    """Achieved occupancy as torch.profiler estimates it: what a launch allows, or all its warps if those are fewer.

    It says 0 of kernels with much shared memory (products, attention), which fill more of the GPU than rounds to 0:
    there the same is computed here, or not known.
    """
    nil = np.flatnonzero((told == 0).fill_null(False).to_numpy())
    if not len(nil):
        return told
    launches = data.profile.once(_launches)[data.rank][ops[nil]]
    axes = "xyz"
    sizes = [np.prod([_filled(launches[f"{of}_{a}"]) for a in axes], axis=0) for of in ("grid", "block")]
    warps = sizes[0] * _up(sizes[1], _WARP)
    name = data.profile.ranks.filter(pl.col("rank") == data.rank)["gpu"][0]
    gpu, chip = gpu_of(name), chip_of(name)
    computed = np.full(len(nil), np.nan)
    if gpu is not None and chip is not None:
        allowed = room_of(data, ops[nil])[THEORETICAL].fill_null(np.nan).to_numpy()
        computed = np.minimum(allowed, 100.0 * warps / (gpu.units * chip.warps))
    values = told.to_numpy().astype(np.float64, copy=True)
    values[nil] = np.where(warps < _FEW_WARPS, 0.0, computed)
    return pl.Series(told.name, values).fill_nan(None)


def _launches(profile: Profile) -> dict[int, pl.DataFrame]:
    return dict(profile.launch_shapes())


def held(launches: pl.DataFrame, chip: Chip) -> pl.DataFrame:
    """The same of launches, by `block_*`, `registers` and `smem_*`."""
    threads = launches.select(pl.col("block_x") * pl.col("block_y") * pl.col("block_z")).to_series()
    # torch.profiler says one figure, of both kinds together.
    shared = launches.select(pl.sum_horizontal("smem_static", "smem_dynamic", ignore_nulls=True)).to_series()
    shared = pl.select(pl.when(launches["smem_dynamic"].is_not_null()).then(shared)).to_series()
    known = (threads.is_not_null() & shared.is_not_null() & launches["registers"].is_not_null()).to_numpy()
    warps = np.maximum(_up(_filled(threads), _WARP), 1)
    of_a_warp = np.maximum(_up(_filled(launches["registers"]) * _WARP, _UNIT) * _UNIT, _UNIT)
    bytes_ = _up(_filled(shared) + chip.reserved, _SHARED_UNIT) * _SHARED_UNIT
    fits = np.stack(
        [
            chip.warps // warps,
            _REGISTERS // _PARTS // of_a_warp * _PARTS // warps,
            np.where(bytes_ > 0, chip.shared // np.maximum(bytes_, 1), chip.blocks),
            np.full(len(warps), chip.blocks),
        ]
    )
    least = fits.min(axis=0)
    known = known & (least > 0)  # what ran had room: such a launch is of another chip
    share: F64 = 100.0 * least * warps / chip.warps
    share = np.minimum(share, 100.0)
    names = pl.Series(LIMITER, [_named(number) for number in range(1 << len(_BY))])
    limiter = names.gather(((fits == least) << np.arange(len(_BY))[:, None]).sum(axis=0))
    limited = pl.Series(known & (share < FULL))
    return pl.DataFrame(
        [
            pl.Series(THEORETICAL, np.where(known, share, np.nan)).fill_nan(None),
            pl.select(pl.when(limited).then(limiter).alias(LIMITER)).to_series(),
        ]
    )


def _named(bits: int) -> str:
    return " and ".join(name for place, name in enumerate(_BY) if bits >> place & 1)


def _up(values: I64, unit: int) -> I64:
    return -(-values // unit)


def _filled(column: pl.Series) -> I64:
    return column.cast(pl.Int64).fill_null(0).to_numpy()
