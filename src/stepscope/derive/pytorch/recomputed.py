"""Work that the forward pass did before, and that the backward pass does again: activation checkpointing.

Where torch ops were recorded, an op that a backward node runs with gradients recorded ran again. In every other trace
the kernels tell: autograd launches the backward pass from a thread of its own, and a stretch of it whose kernels are
those of a stretch of the forward pass (names, grids and blocks, one by one, with a product, a convolution or attention
among them) is that stretch again. A kernel of fused attention's forward pass that the backward pass launches is
recomputed, too: nothing else in a backward pass needs it, and compilers leave it as it is where they fuse all else
differently.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.pytorch.torch_ops import torch_ops
from stepscope.derive.rank.data import COMPUTE, RankData
from stepscope.intervals.arrays import I64, NONE, Mask, take

#: So many kernels in a row are no chance: the casts and copies around one product may be alike in both passes.
_IN_A_ROW = 6
#: Of these, kinds of kernels: a run of casts and fills is alike wherever it is.
_DISTINCT = 3
_HEAVY = ("gemm", "convolution", "attention")
#: The forward pass of fused attention, by name.
_ATTENTION = r"(?i)flash_fwd|fmha_fwd|fmha_cutlassF|flash_fprop|attn_fwd|fprop\w*sdpa|sdpa\w*fprop"
_SHAPE = [f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"]


def recomputed(data: RankData, ops: I64) -> I64:
    """Of these ops, those that ran before in the forward pass and run again; in order."""
    linked: I64 = ops[data.launch[ops] != NONE]
    if not len(linked):
        return linked
    order = linked[np.argsort(data.launched_at[linked], kind="stable")]
    tid = data.calls["tid"].cast(pl.Int64).to_numpy()[data.launch[order]]
    back: Mask = tid != tid[0]  # a step begins with the forward pass, on the thread that runs the loop
    again = _recorded(data, order)
    if back.any():
        again |= _like_forward(data, order, back)
    return np.sort(order[again])


def _recorded(data: RankData, ops: I64) -> Mask:
    """As torch ops say. A product with `create_graph` records gradients, too: only what ran forward can run again."""
    torch = torch_ops(data.profile, data)
    if not len(torch):
        return np.zeros(len(ops), dtype=bool)
    threads = data.calls["tid"].cast(pl.Int64).to_numpy()[data.launch[ops]]
    at = torch.nesting.enclosing(threads, data.launched_at[ops])
    backward, again = take(torch.backward, at, False), take(torch.again, at, False)
    before = np.unique(data.name[ops[~backward]])
    found: Mask = again & np.isin(data.name[ops], before)
    return found


def _like_forward(data: RankData, order: I64, back: Mask) -> Mask:
    """As kernels say: ops in the order of their launches, and which of them another thread launched."""
    heavy = data.per_name(lambda names: data.profile.taxonomy.family(names).is_in(_HEAVY).to_numpy().astype(np.int64))
    again: Mask = back & data.profile.names_with(_ATTENTION)[data.name[order]]
    kernel = (data.role[order] == COMPUTE) & data.is_kernel[order]
    behind = np.flatnonzero(kernel & back)
    before = np.flatnonzero(kernel & ~back)
    if min(len(behind), len(before)) < _IN_A_ROW:
        return again
    symbol = _symbols(data, order)
    seen, asked = _runs(symbol[before]), _runs(symbol[behind])
    starts = np.flatnonzero(np.isin(asked, seen))
    covered = np.zeros(len(behind) + 1, dtype=np.int64)
    np.add.at(covered, starts, 1)
    np.add.at(covered, starts + _IN_A_ROW, -1)
    inside = np.cumsum(covered[:-1]) > 0
    edges = np.flatnonzero(np.diff(np.r_[False, inside, False]))
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        rows = behind[first:last]
        if heavy[data.name[order[rows]]].any() and len(np.unique(symbol[rows])) >= _DISTINCT:
            again[rows[0] : rows[-1] + 1] |= back[rows[0] : rows[-1] + 1]
    return again


def _symbols(data: RankData, ops: I64) -> I64:
    """Of each op a number: the same for the same name, grid and block."""
    frame = dict(data.profile.by_rank("ops", detail=True))[data.rank]
    known = [column for column in _SHAPE if column in frame.columns]
    return frame[ops].select(pl.struct("name", *known).rank("dense"))["name"].cast(pl.Int64).to_numpy()


def _runs(symbol: I64) -> I64:
    """By position: a number of the run of kernels that begins there."""
    count = len(symbol) - _IN_A_ROW + 1
    number = symbol[:count].copy()
    base = np.int64(1_000_003)
    with np.errstate(over="ignore"):
        for further in range(1, _IN_A_ROW):
            number = number * base + symbol[further : further + count]
    return number
