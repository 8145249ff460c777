"""Experts run one by one, in a loop: small products that fill a part of the GPU each, with launches and waits between.

What it could save is the step replayed with the kernels of all experts of a layer as one grouped product would take
them: side by side on the multiprocessors, launched once, and without the waits between them for how many tokens each
has.

Experts are told by a run of kernels, the same few for each, that comes several times in a row, with products in it that
fill a part of the GPU only, and tokens gathered or scattered between them, or two products and more; no norm and no
attention, which layers have. Each expert's products may be other kernels, as many tokens as it has: a product is like
any other here, and so are the forms of an elementwise kernel (of vectors, or not). All that lies in such a run is the
loop's: looking for an expert's tokens, sorting their gradients, adding to a tensor of all experts. Together each kernel
runs once: a product, and what works on an expert's tokens, takes the part of its time that is its share of the GPU;
what works on the same whole tensor for every expert, or looks for its tokens, takes the time of one.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np

from stepscope.derive.host.idle_causes import SYNC
from stepscope.derive.replay.change import Change
from stepscope.derive.work.roles import Role
from stepscope.derive.work.sizes import gpu, launches
from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import wastes
from stepscope.findings.evidence.hosts import hosts
from stepscope.findings.evidence.sequence import SMALL_TENSOR, Sequence
from stepscope.findings.evidence.wasted import Told, Waste, change, wasted
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.intervals.arrays import F64, I64, NONE, Mask, numbered
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
#: What may be done to a whole tensor for each expert.
_OF_ALL = (Role.FILL, Role.COPY, Role.ELEMENTWISE)
_PRODUCT = -2
_APART_CODE = -3
#: Threads that a multiprocessor holds.
_RESIDENT = 2048
#: Forms that PyTorch chooses from by how many elements there are, and how they lie; and what is done to each.
_FORM = re.compile(r"\b(?:(?:vectorized|unrolled|legacy)_)?elementwise_kernel(?:_manual_unroll)?<")
_WHAT = re.compile(r"(?<!\w)\w*(?:Functor|_kernel|_impl)\w*")


def claim(sequence: Sequence, free: Mask) -> F64:
    """What is left of each kernel of experts that run one by one, NaN for others."""
    left = np.full(len(sequence.ops), np.nan)
    device = gpu(sequence.data)
    shape = launches(sequence.data, sequence.ops)
    product = sequence.kinds.are(Role.PRODUCT)
    if device is None or not device.units or not shape.blocks.any():
        return left
    small = product & (shape.blocks > 0) & (shape.blocks < device.units)
    if small.sum() < EXPERTS.value:
        return left
    like = _likes(sequence)
    kept, codes = _codes(sequence, like, product)
    threads = np.where(shape.blocks > 0, shape.blocks * shape.threads / _RESIDENT, np.inf)
    share = np.minimum(np.where(product, shape.blocks, threads) / device.units, 1.0)
    for begin, end, times in _runs(sequence, kept, codes, small):
        at = np.arange(kept[begin], kept[end - 1] + 1)
        once = sequence.kinds.are(Role.SORT)[at] | _whole(sequence, like[at], at, times)
        left[at] = np.where(once, 1 / times, share[at])
    left[~free | sequence.optimizer] = np.nan
    return left


def _whole(sequence: Sequence, like: I64, at: I64, times: int) -> Mask:
    """Kernels of a run on the same whole tensor each time: of one size, where experts differ in their tokens."""
    size = np.where(np.isnan(sequence.sizes.elements), sequence.sizes.bytes, sequence.sizes.elements)[at]
    size = np.where(size >= SMALL_TENSOR.value, size, 0.0)
    kinds, kind = np.unique(np.stack([like.astype(float), size]), axis=1, return_inverse=True)
    alike = np.bincount(kind.ravel())[kind.ravel()]
    sizes = np.bincount(kinds[0].astype(int), weights=kinds[1] > 0)
    if not (2 * sizes > times).any():
        return np.zeros(len(at), dtype=bool)
    whole: Mask = sequence.kinds.are(*_OF_ALL)[at] & (size > 0) & (2 * alike > times)
    return whole


def _codes(sequence: Sequence, like: I64, product: Mask) -> tuple[I64, I64]:
    """Positions that count, and a number for each that like kernels share: products one, what parts runs another."""
    again = product & np.r_[False, product[:-1]]
    kept = np.flatnonzero(~again & ~sequence.kinds.are(Role.FILL, Role.SORT, Role.COMMUNICATION))
    codes = like[kept]
    codes[product[kept]] = _PRODUCT
    codes[sequence.kinds.are(*_APART)[kept]] = _APART_CODE
    return kept, codes


def _likes(sequence: Sequence) -> I64:
    """A number per kernel that forms of one elementwise kernel share."""
    ids, where = numbered(sequence.data.name[sequence.ops])
    texts = [_like(text) for text in sequence.data.profile.names.gather(ids).to_list()]
    like: I64 = np.unique(np.array(texts), return_inverse=True)[1][where]
    return like


@cache
def _like(name: str) -> str:
    """The same of all forms of one elementwise kernel: what it does to each element."""
    form = _FORM.search(name)
    return " ".join(dict.fromkeys(_WHAT.findall(name[form.end() :]))) if form else name


def _runs(sequence: Sequence, kept: I64, codes: I64, small: Mask) -> list[tuple[int, int, int]]:
    """Where runs begin and end that come several times in a row, and how often they come."""
    taken = np.zeros(len(codes), dtype=bool)
    runs = []
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
            if taken[begin:end].any():
                continue
            of_one = products[begin + period] - products[begin]
            gathers = routed[begin + period] > routed[begin]
            mostly = 2 * (little[end] - little[begin]) > products[end] - products[begin]
            if of_one >= (1 if gathers else 2) and mostly:
                taken[begin:end] = True
                runs.append((begin, end, (end - begin) // period))
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
        f"they take {about(lost.took_ns)} of the step on rank {lost.rank}, {lost.most}; most fill only part "
        f"of the GPU. As one grouped GEMM, with what belongs to it, they would take about {about(lost.good_ns)}",
        advice("experts-one-by-one"),
    )
