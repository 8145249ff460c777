"""Experts run one by one, in a loop: small products that fill a part of the GPU each, with launches and waits between.

What it could save is the step replayed with the kernels of all experts of a layer as one grouped product would take
them: side by side on the multiprocessors, launched once, and without the waits between them for how many tokens each
has.

Experts are told by a run of kernels, the same few for each, that comes several times in a row, with products in it that
fill a part of the GPU only, and tokens gathered or scattered between them, or two products and more; no norm and no
attention, which layers have. Each expert's products may be other kernels, as many tokens as it has: a product is like
any other here. Together in one grouped product they would fill the GPU: each takes the part of its time that is its
share of the multiprocessors.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.host.idle_causes import SYNC
from stepscope.derive.replay.change import Change
from stepscope.derive.work.roles import Role
from stepscope.derive.work.sizes import gpu, launches
from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import wastes
from stepscope.findings.evidence.hosts import hosts
from stepscope.findings.evidence.sequence import Sequence
from stepscope.findings.evidence.wasted import Told, Waste, change, wasted
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.intervals.arrays import F64, I64, NONE, Mask
from stepscope.model.statement import several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

ID = "experts-one-by-one"

EXPERTS = Threshold(
    4,
    "times in a row",
    "as few as a layer of experts has; queries, keys and values are three",
    ("tests/findings/test_experts_one_by_one.py", "tests/data/pairs"),
)
EXPERT_KERNELS = Threshold(
    40,
    "kernels of an expert",
    "two or three products, gathering, an activation, weights and scattering are up to 20; half as many again backward",
    ("tests/findings/test_experts_one_by_one.py",),
)


#: What layers have and experts do not.
_APART = (Role.NORM, Role.ATTENTION, Role.SOFTMAX, Role.LOSS, Role.CONVOLUTION, Role.POOLING, Role.OPTIMIZER)
_ROUTED = (Role.INDEX, Role.EMBEDDING)
_PRODUCT = -2
_APART_CODE = -3


def claim(sequence: Sequence, free: Mask) -> F64:
    """What is left of each kernel of experts that run one by one, NaN for others."""
    left = np.full(len(sequence.ops), np.nan)
    device = gpu(sequence.data)
    blocks = launches(sequence.data, sequence.ops).blocks
    product = sequence.kinds.are(Role.PRODUCT)
    if device is None or not device.units or not blocks.any():
        return left
    small = product & (blocks > 0) & (blocks < device.units)
    if small.sum() < EXPERTS.value:
        return left
    kept, codes = _codes(sequence, product)
    run = _runs(sequence, kept, codes, small)
    mine = np.zeros(len(sequence.ops), dtype=bool)
    mine[kept[run]] = True
    mine |= product & np.r_[False, mine[:-1]] & np.r_[False, product[:-1]]  # second kernels of a product
    mine &= free & ~sequence.optimizer
    left[mine] = np.where(blocks[mine] > 0, np.minimum(blocks[mine] / device.units, 1.0), 1.0)
    return left


def _codes(sequence: Sequence, product: Mask) -> tuple[I64, I64]:
    """Positions that count, and a number for each that like kernels share: products one, what parts runs another."""
    again = product & np.r_[False, product[:-1]]
    kept = np.flatnonzero(~again & ~sequence.kinds.are(Role.FILL, Role.SORT, Role.COMMUNICATION))
    codes = sequence.data.name[sequence.ops[kept]].astype(np.int64)
    codes[product[kept]] = _PRODUCT
    codes[sequence.kinds.are(*_APART)[kept]] = _APART_CODE
    return kept, codes


def _runs(sequence: Sequence, kept: I64, codes: I64, small: Mask) -> Mask:
    """Which of the positions lie in runs that come several times in a row."""
    runs = np.zeros(len(codes), dtype=bool)
    fits = codes != _APART_CODE
    products = np.r_[0, np.cumsum(codes == _PRODUCT)]
    routed = np.r_[0, np.cumsum(sequence.kinds.are(*_ROUTED)[kept])]
    little = np.r_[0, np.cumsum(small[kept])]
    for period in range(2, int(EXPERT_KERNELS.value) + 1):
        if period * EXPERTS.value > len(codes):
            break
        same = (codes[period:] == codes[:-period]) & fits[period:]
        edges = np.flatnonzero(np.diff(np.r_[False, same, False]))
        begins, ends = edges[::2], edges[1::2] + period
        long = ends - begins >= EXPERTS.value * period
        for begin, end in zip(begins[long].tolist(), ends[long].tolist(), strict=True):
            if runs[begin:end].any():
                continue
            of_one = products[begin + period] - products[begin]
            gathers = routed[begin + period] > routed[begin]
            mostly = 2 * (little[end] - little[begin]) > products[end] - products[begin]
            if of_one >= (1 if gathers else 2) and mostly:
                runs[begin:end] = True
    return runs


def remedy(case: Case) -> Change:
    """Grouped products, and no waits between them."""
    waste_of = wastes(case, ID)
    waits = {r: calls for r, w in waste_of.items() if len(calls := _waits(case, r, w))}
    return change(case, waste_of) & Change(calls_not_waiting=waits)


def _waits(case: Case, rank: int, waste: Waste) -> I64:
    """Waits of the host between launches of one run."""
    host = hosts(case)[rank]
    launch = host.data.launch[np.sort(waste.ops)]
    launch = np.sort(launch[launch != NONE])
    calls = host.of_cause(SYNC)
    if not len(launch) or not len(calls):
        return calls[:0]
    place = np.searchsorted(launch, calls)
    inside = (place > 0) & (place < len(launch))
    before, behind = launch[np.maximum(place - 1, 0)], launch[np.minimum(place, len(launch) - 1)]
    near: I64 = calls[inside & (behind - before <= 2 * len(host.calls) // max(len(launch), 1) + 8)]
    return near


def detect(case: Case) -> list[Finding]:
    return wasted(case, ID, wastes(case, ID), _said)


def _said(lost: Told) -> tuple[str, str, str]:
    return (
        title("experts-one-by-one", kernels=several(lost.kernels, "small kernel"), rank=lost.rank),
        f"they take {about(lost.took_ns)} of the step on rank {lost.rank}, {lost.most}; each fills only part "
        f"of the GPU. As one grouped GEMM they would take about {about(lost.good_ns)}",
        advice("experts-one-by-one"),
    )
