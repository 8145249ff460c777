"""Sizes that do not fit: a vocabulary of 50257, widths and channels that are not multiples of 8.

Names of kernels say that loads are not aligned. What it could save is the step replayed with each product at the rate
of one whose sizes fit, without what pads channels, and with norms in one pass.

Odd numbers of columns keep loads from being vectors, and the fast kernels away. A kernel's name says to how many
numbers its loads are aligned. What the same product takes with sizes that fit follows from its FLOPs, at the rate
measured for such products (`derive/work/reference.py`). FLOPs are of recorded shapes; where there are none, of the
three products that a layer is in training (of the layer itself and of the two gradients): the tiles of a kernel times
its blocks are the numbers that it gives, rows times columns, and three such areas tell all three sizes. Where that
fails too, products are as much faster as measured ones are.

cuDNN copies images whose channels are not a multiple of 8 into larger ones around each convolution. PyTorch's layer
norm takes rows of any length in two kernels, of which the first reads all of them to find their moments; rows of a
multiple of 4 take one, which has a block for each row.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np

from stepscope.derive.flops.measured import work_of
from stepscope.derive.flops.work import from_shapes
from stepscope.derive.work.reference import product_rate, rows
from stepscope.derive.work.roles import PRECISION, Role, kernels
from stepscope.derive.work.sizes import gpu, launches
from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import claimed, wastes
from stepscope.findings.evidence.sequence import Sequence
from stepscope.findings.evidence.wasted import Told
from stepscope.findings.texts import advice, title
from stepscope.intervals.arrays import F64, I64, NONE, Mask
from stepscope.model.capturing import capture_with
from stepscope.model.gpus import Gpu
from stepscope.model.statement import listed, several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

ID = "odd-shapes"

PADDED = Threshold(
    50.0,
    "% of the convolutions",
    "images have three channels, which the first and last layers of every network have to pad",
    ("tests/data/pairs", "tests/findings/test_odd_shapes.py"),
)
NORM_ROW = Threshold(
    1.6,
    "ns a row",
    "a block for each row, however short: 65,536 and 262,144 rows of 80 and 160 numbers on an H200",
    ("tests/data/pairs", "tests/findings/test_odd_shapes.py"),
)
#: The GPU that rows were timed on has so many multiprocessors.
_TIMED_ON = 132

_PADDED = r"nhwcAddPadding"
_MOMENTS, _NORMED = r"RowwiseMomentsCUDAKernel", r"LayerNormForwardCUDAKernel"
_TILE = re.compile(r"_(\d{1,6})x(\d{1,6})(?=_)")
_HALF = ("bf16", "fp16")


def claim(sequence: Sequence, free: Mask) -> F64:
    """What is left of each kernel whose sizes do not fit, NaN for others."""
    device = gpu(sequence.data)
    left = _products(sequence, free, device)
    names, profile = sequence.data.name[sequence.ops], sequence.data.profile
    padding = profile.names_with(_PADDED)[names]
    if _mostly_padded(sequence, padding):
        zeroed = sequence.kinds.are(Role.FILL) & ~sequence.data.is_kernel[sequence.ops]
        left[free & (padding | (zeroed & np.r_[padding[1:], False]))] = 0.0
    moments = profile.names_with(_MOMENTS)[names] & np.r_[profile.names_with(_NORMED)[names][1:], False]
    at = np.flatnonzero(moments & free)
    if len(at) and device is not None and device.units:
        took, rest = sequence.ns[at].astype(float), sequence.ns[at + 1].astype(float)
        rows_ns = launches(sequence.data, sequence.ops[at]).blocks * NORM_ROW.value * _TIMED_ON / device.units
        left[at] = np.clip((np.maximum(rest, rows_ns) - rest) / np.maximum(took, 1), 0.0, 1.0)
    return left


def _mostly_padded(sequence: Sequence, padding: Mask) -> bool:
    """Whether most convolutions have such a copy before or behind them."""
    if not padding.any():
        return False
    kept = np.flatnonzero(~sequence.kinds.are(Role.FILL))
    pads, convolution = padding[kept], (sequence.kinds.are(Role.CONVOLUTION) & sequence.kinds.matrix)[kept]
    beside = np.r_[False, pads[:-1]] | np.r_[pads[1:], False]
    return int((convolution & beside).sum()) >= PADDED.share * int(convolution.sum())


def _products(sequence: Sequence, free: Mask, device: Gpu | None) -> F64:
    left = np.full(len(sequence.ops), np.nan)
    kinds = sequence.kinds
    precision = np.array(PRECISION)[kinds.precision]
    fits = np.where(np.isin(precision, _HALF), 8, 4)
    wide = np.isin(precision, (*_HALF, "tf32")) & (kinds.alignment > 0) & (kinds.alignment < fits)
    at = np.flatnonzero(free & sequence.heavy & wide & kinds.are(Role.PRODUCT))
    if not len(at) or device is None:
        return left
    flops = _flops(sequence, at)
    for place, (position, work) in enumerate(zip(at.tolist(), flops.tolist(), strict=True)):
        precision_name = str(precision[position])
        rate = product_rate(device, precision_name, work) if work > 0 else None
        if rate is not None:
            left[position] = min(1.0, work / (rate.value * 1e3) / max(float(sequence.ns[position]), 1.0))
        else:
            left[position] = _measured(int(kinds.alignment[at[place]]), precision_name)
    return left


def _flops(sequence: Sequence, at: I64) -> F64:
    """FLOPs of each, 0 where nothing tells."""
    by_shapes = _by_shapes(sequence, at)
    return by_shapes if (by_shapes > 0).all() else np.where(by_shapes > 0, by_shapes, _by_tiles(sequence, at))


def _by_shapes(sequence: Sequence, at: I64) -> F64:
    work = from_shapes(sequence.data.profile, sequence.data)
    row = work.of_kernel[sequence.ops[at]]
    if not work.ops.height:
        return np.zeros(len(at))
    asked = work.ops["asked"].fill_null(0).to_numpy()
    return np.where(row == NONE, 0.0, asked[np.maximum(row, 0)].astype(float))


def _by_tiles(sequence: Sequence, at: I64) -> F64:
    """Three products of one layer: of areas m·n, m·k and n·k, each has 2·m·n·k FLOPs."""
    names = sequence.data.profile.names.gather(sequence.data.name[sequence.ops[at]]).to_list()
    tiles = np.array([_tile(name) for name in names], dtype=float)
    area = tiles * launches(sequence.data, sequence.ops[at]).blocks
    forward, back = np.flatnonzero(~sequence.back[at]), np.flatnonzero(sequence.back[at])
    flops = np.zeros(len(at))
    if len(back) == 2 * len(forward) and (area > 0).all():
        # The last layer comes back first, with both of its gradients.
        for place, first in enumerate(forward[::-1].tolist()):
            three = [first, *back[2 * place : 2 * place + 2].tolist()]
            flops[three] = 2.0 * np.sqrt(area[three].prod())
    return flops


@cache
def _tile(name: str) -> int:
    """The numbers that a block gives."""
    match = _TILE.search(name)
    return int(match[1]) * int(match[2]) if match else 0


@cache
def _measured(alignment: int, precision: str) -> float:
    """The time of products that fit, as a part of that of unaligned ones of the same size."""
    reference = "tf32" if precision == "tf32" else "bf16"
    odd = {1: "4097", 2: "4098", 4: "4100"}.get(alignment, "4100")
    return _rate("unaligned", reference, odd) / _rate("product", reference, "4096")


def _rate(op: str, precision: str, columns: str) -> float:
    references = (r for r in rows() if r.op == op and r.precision == precision)
    return next(r.flops / r.us for r in references if (r.sizes["n"], r.sizes["k"]) == (columns, "4096"))


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    data = case.data_of(lost.rank)
    of_products, others = _does(case, lost.rank)
    unknown = of_products and not work_of(data).shaped
    sharper = f"; shapes would tell which sizes, and their FLOPs: {capture_with('shapes')}" if unknown else ""
    does = listed([*(["load unaligned data"] if of_products else []), *others])
    return (
        title("odd-shapes", kernels=several(lost.kernels, "kernel has", "kernels have"), rank=lost.rank),
        f"they {does}, and take {about(lost.took_ns)} of the step on rank {lost.rank}, {lost.most}; with aligned sizes "
        f"that would be about {about(lost.good_ns)}{sharper}",
        advice("odd-shapes"),
    )


def _does(case: Case, rank: int) -> tuple[bool, list[str]]:
    """Whether products are among them, and what others do."""
    data, ops = case.data_of(rank), wastes(case, ID)[rank].ops
    products = kernels(data, ops).are(Role.PRODUCT)
    reasons = ((_PADDED, "pad channels around convolutions"), (_MOMENTS, "read rows twice for a layer norm"))
    return bool(products.any()), [
        words for name, words in reasons if data.profile.names_with(name)[data.name[ops]].any()
    ]


remedy, detect = claimed(ID, _worded)
