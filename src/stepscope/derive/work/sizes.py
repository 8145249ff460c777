"""Elements and bytes of each kernel, and where that is known from.

In this order: what the trace records (copies and memsets); shapes of the torch op that launched it; the launch's grid
with what its name says of a block (`extents`); and for what memory bounds, that it moved no more than its time allows.
Whatever says more than the GPU's memory could move is cut to that.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from stepscope.derive.rank.data import RankData
from stepscope.derive.work.extents import extent
from stepscope.derive.work.launches import op_bytes
from stepscope.derive.work.roles import Kernels, kernels
from stepscope.derive.work.rules import MEMORY_BOUND
from stepscope.intervals.arrays import F64, I64, Mask, numbered, one_of
from stepscope.model import ranks as of_ranks
from stepscope.model.gpus import Gpu, gpu_of
from stepscope.model.profile import Profile
from stepscope.model.threshold import Threshold

#: From where the bytes of a kernel are known (`Sizes.source`): each is trusted more than those before it.
SOURCES = ("unknown", "time", "grid", "shapes", "recorded")
UNKNOWN, TIME, GRID, SHAPES, RECORDED = range(len(SOURCES))

_LARGE = Threshold(
    50.0,
    "µs",
    "the L2 cache serves what is shorter: only larger launches show how fast memory is",
    ("tests/derive/work/test_sizes.py",),
)
_MOST = Threshold(
    1.02,
    "times the data sheet's bandwidth",
    "no kernel moves more, but for the noise of clocks",
    ("tests/derive/work/test_sizes.py",),
)


class Sizes(Struct, frozen=True):
    """By row of the ops that were asked about. `elements` and `bytes` are NaN where nothing tells."""

    elements: F64
    bytes: F64
    source: np.ndarray[tuple[int], np.dtype[np.int8]]


class Launches(Struct, frozen=True):
    """Blocks of each launch, its threads, and rows of threads in a block; 0 where the trace has no grids."""

    blocks: I64
    threads: I64 | npt.NDArray[np.int32]
    rows: I64 | npt.NDArray[np.int32]


def gpu(data: RankData) -> Gpu | None:
    """The GPU of the rank; None where the trace does not name a known one."""
    return data.once(_gpu)


def _gpu(data: RankData) -> Gpu | None:
    return gpu_of(of_ranks.gpu_name(data.profile.ranks, data.rank))


def launches(data: RankData, ops: I64) -> Launches:
    """Grids and blocks of these ops."""
    every = data.once(_launches)
    return Launches(every.blocks[ops], *(of[ops].astype(np.int64) for of in (every.threads, every.rows)))


def _launches(data: RankData) -> Launches:
    """Of all ops of the rank: several questions ask about most of them."""
    frame = data.profile.once(_shapes)[data.rank]
    if not frame.width:
        nothing = np.zeros(len(data.start), np.int64)
        return Launches(nothing, nothing, nothing)
    every = frame.select(pl.all().cast(pl.Int64).fill_null(0))
    grid, block = (_product(every, what) for what in ("grid", "block"))
    rows = block // np.maximum(every["block_x"].to_numpy(), 1)
    # A block has at most 1,024 threads; what a broken file says is cut.
    return Launches(grid, *(np.minimum(of, np.iinfo(np.int32).max).astype(np.int32) for of in (block, rows)))


def _product(frame: pl.DataFrame, what: str) -> I64:
    x, y, z = (frame[f"{what}_{axis}"].to_numpy() for axis in "xyz")
    product: I64 = x * y * z
    return product


def _shapes(profile: Profile) -> dict[int, pl.DataFrame]:
    columns = [f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"]
    return {
        rank: ops.select(columns) if set(columns) <= set(ops.columns) else pl.DataFrame()
        for rank, ops in profile.launch_shapes()
    }


def sizes(data: RankData, ops: I64, known: Kernels | None = None) -> Sizes:
    """Elements and bytes of these ops."""
    kinds = known or kernels(data, ops)
    elements, moved, unsure = _by_grid(data, ops)
    gbps = float(device.gbps) if (device := gpu(data)) else np.nan
    length = (data.end - data.start)[ops].astype(float)
    most = length * gbps * _MOST.value  # 10⁹ bytes a second are bytes a nanosecond
    shaped = op_bytes(data, ops)
    by_shape = ~np.isnan(shaped) & one_of(kinds.role, MEMORY_BOUND)
    both = unsure & by_shape & (shaped > 0) & (moved > 0)
    twice = _twice(moved[both], shaped[both]) if both.any() else _too_fast(moved[unsure], most[unsure], length[unsure])
    if twice:
        elements, moved = np.where(unsure, elements / 2, elements), np.where(unsure, moved / 2, moved)
    source = np.where(moved > 0, GRID, UNKNOWN).astype(np.int8)
    moved, source[by_shape] = np.where(by_shape, shaped, moved), SHAPES
    bound = one_of(kinds.role, MEMORY_BOUND) & (source == UNKNOWN) & ~np.isnan(most)
    moved, source[bound] = np.where(bound, most / _MOST.value, moved), TIME
    recorded = _recorded(data, ops)
    moved, source[recorded > 0] = np.where(recorded > 0, recorded, moved), RECORDED
    moved = np.where(source == UNKNOWN, np.nan, np.fmin(moved, most))
    return Sizes(np.where(elements > 0, elements, np.nan), moved, source)


def crossing(data: RankData, ops: I64) -> Mask:
    """Copies that leave the GPU or come to it: the link bounds them, not the GPU's memory."""
    return data.ops["copy_kind"].gather(ops).is_in(["HtoD", "DtoH", "PtoP"]).to_numpy()


def _recorded(data: RankData, ops: I64) -> F64:
    """Bytes that a copy or memset moves through the GPU's memory: a copy within it reads and writes; 0 for kernels."""
    some = data.ops.select("bytes", "copy_kind")[ops].select(
        pl.col("bytes").fill_null(0).cast(pl.Float64),
        (pl.col("copy_kind") == "DtoD").alias("within"),
    )
    moved: F64 = (some["bytes"] * (1 + some["within"].cast(pl.Float64))).to_numpy()
    return moved


def _by_grid(data: RankData, ops: I64) -> tuple[F64, F64, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Elements, bytes, and of which the version of PyTorch matters."""
    ids, where = numbered(data.name[ops])
    texts = data.profile.names.gather(ids).to_list() if len(ids) else []
    extents = [extent(text) for text in texts]
    block, thread, row, each, unsure = (
        np.array([getattr(e, field) for e in extents], dtype=float)[where] if extents else np.zeros(len(ops))
        for field in ("per_block", "per_thread", "per_row", "bytes", "unsure")
    )
    shape = launches(data, ops)
    elements = shape.blocks * (block + thread * shape.threads + row * shape.rows)
    return elements, elements * each, unsure > 0


def _twice(moved: F64, shaped: F64) -> bool:
    """Whether grids tell twice the bytes that shapes do, for most kernels: then a thread takes half as many."""
    return bool(np.median(moved / shaped) > np.sqrt(2))


def _too_fast(moved: F64, most: F64, length: F64) -> bool:
    """Whether most large launches would have moved more than memory can: then a thread takes half as many elements.

    One alone says nothing: what it reads may be in the cache, or be broadcast.
    """
    large = (length >= _LARGE.ns) & ~np.isnan(most)
    return bool(large.any() and 2 * (moved[large] > 1.1 * most[large]).sum() > large.sum())
