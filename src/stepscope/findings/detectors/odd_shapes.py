"""Products of matrices whose sizes do not fit: a vocabulary of 50257, widths that are not multiples of 8.

Names of their kernels say that loads are not aligned. What it could save is the step replayed with each product at the
rate of one whose sizes fit.

Odd numbers of columns keep loads from being vectors, and the fast kernels away. A kernel's name says to how many
numbers its loads are aligned. What the same product takes with sizes that fit follows from its FLOPs, at the rate
measured for such products (`derive/work/reference.py`). FLOPs are of recorded shapes; where there are none, of the
three products that a layer is in training (of the layer itself and of the two gradients): the tiles of a kernel times
its blocks are the numbers that it gives, rows times columns, and three such areas tell all three sizes. Where that
fails too, products are as much faster as measured ones are.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np

from stepscope.derive.flops.measured import work_of
from stepscope.derive.flops.work import from_shapes
from stepscope.derive.work.reference import product_rate, rows
from stepscope.derive.work.roles import PRECISION, Role
from stepscope.derive.work.sizes import gpu, launches
from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import claimed
from stepscope.findings.evidence.sequence import Sequence
from stepscope.findings.evidence.wasted import Told
from stepscope.findings.texts import advice, title
from stepscope.intervals.arrays import F64, I64, NONE, Mask
from stepscope.model.capturing import capture_with
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "odd-shapes"

_TILE = re.compile(r"_(\d+)x(\d+)(?=_)")
_HALF = ("bf16", "fp16")


def claim(sequence: Sequence, free: Mask) -> F64:
    """What is left of each product that does not fit, NaN for others."""
    left = np.full(len(sequence.ops), np.nan)
    kinds, device = sequence.kinds, gpu(sequence.data)
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
    known = "tf32" if precision == "tf32" else "bf16"
    odd = {1: "4097", 2: "4098", 4: "4100"}.get(alignment, "4100")
    return _rate("unaligned", known, odd) / _rate("product", known, "4096")


def _rate(op: str, precision: str, columns: str) -> float:
    references = (r for r in rows() if r.op == op and r.precision == precision)
    return next(r.flops / r.us for r in references if (r.sizes["n"], r.sizes["k"]) == (columns, "4096"))


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    shaped = work_of(case.data_of(lost.rank)).shaped
    sharper = "" if shaped else f"; shapes would tell which sizes, and their FLOPs: {capture_with('shapes')}"
    return (
        title("odd-shapes", products=several(lost.kernels, "product has", "products have"), rank=lost.rank),
        f"their kernels load unaligned data and take {about(lost.took_ns)} of the step on rank {lost.rank}, "
        f"{lost.most}; matmuls of that size with aligned sizes would take about {about(lost.good_ns)}{sharper}",
        advice("odd-shapes"),
    )


remedy, detect = claimed(ID, _worded)
