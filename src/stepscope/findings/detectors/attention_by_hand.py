"""Attention written out: products, mask and softmax as kernels of their own, each reading and writing all scores.

What it could save is the step replayed with each of them at the time of fused attention of that size. The scores are as
many as queries times keys: memory grows with the square of the length, too.

A softmax between two products tells it (a kernel of its own, or written out: maximum, exponential and sum), in the
backward pass likewise, with two products on either side; unless something between them is sorted (a router of experts
does that), normalized or looked up (so does who chooses tokens), or the products are far larger than the scores. How
many scores there are, elementwise kernels beside the softmax tell, else what it moves. Its good time is that of fused
attention, which never writes the scores: 4 FLOPs per score and per number of a head forward (half of them under a
mask), 2.5 times that backward, at the rate measured for heads of that size (`derive/work/reference.py`). Of a GPU that
nobody knows, no rate is known: then the products stay as they are, and what lies between them goes.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.work.extents import extent
from stepscope.derive.work.parts import spelled_softmax
from stepscope.derive.work.reference import attention_rate, bandwidth
from stepscope.derive.work.roles import PRECISION, Role
from stepscope.derive.work.sizes import gpu, launches
from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import claimed
from stepscope.findings.evidence.sequence import SAME_SIZE, Sequence
from stepscope.findings.evidence.wasted import Told
from stepscope.findings.texts import advice, title
from stepscope.intervals.arrays import F64, I64, Mask
from stepscope.model.gpus import Gpu
from stepscope.model.statement import several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

ID = "attention-by-hand"

USUAL_LENGTH = Threshold(
    2048,
    "keys of a query",
    "where a softmax is written out, nothing tells how long its rows are; rates of fused kernels vary little with it",
    ("public/a100_lm2.7b_nvtx.sqlite",),
)
LIKE_PRODUCT = Threshold(
    2.5,
    "times as long",
    "the gradients of both factors of a product are as many FLOPs each; kernels for them differ by up to 1.5",
    ("tests/findings/test_waste_pairs.py",),
)
FAR_LARGER = Threshold(
    8.0,
    "times as long as it takes to write the scores",
    "products of attention take 1.4 to 3 times that; a router's scores are a few for each token, and products around "
    "them take a hundred times as long",
    ("tests/findings/test_waste_pairs.py", "tests/findings/test_healthy.py"),
)
USUAL_HEAD = Threshold(
    64,
    "numbers of a head",
    "where no tensor beside the scores tells; it matters little: fused attention is a few per cent of what it replaces",
    ("tests/findings/test_waste_pairs.py",),
)


STREAMS = Threshold(
    50.0,
    "µs",
    "shorter ones are not bound by memory: of a GPU that is not known, they say too little of its rate",
    ("tests/findings/test_attention_spelled_out.py",),
)
FLOAT_SLOWER = Threshold(
    16.0,
    "times as long as in half precision",
    "products in float without tensor cores, by the peak rates of most GPUs that have some",
    ("tests/findings/test_attention_spelled_out.py",),
)


#: What masks scores before their softmax, or with it: under a causal mask, half of them need no work.
_MASKS = r"(?i)masked|where_kernel|triu|tril|CUDAFunctor_add"
#: Sizes of heads that fused kernels have; what a tensor beside the scores gives otherwise is not a head.
_HEADS = np.array([32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 160, 192, 256])


def claim(sequence: Sequence, free: Mask) -> F64:
    """What is left of each kernel of attention by hand, NaN for others."""
    left = np.full(len(sequence.ops), np.nan)
    landmarks = np.flatnonzero(sequence.heavy)
    spelled = spelled_softmax(sequence.data, sequence.ops, sequence.kinds, np.arange(len(sequence.ops)))
    softmaxes = np.flatnonzero((sequence.kinds.are(Role.SOFTMAX) | spelled) & free)
    device = gpu(sequence.data)
    gbps = bandwidth(device).value if device is not None else _reached(sequence)
    if not len(softmaxes) or len(landmarks) < 2 or not gbps:
        return left
    place = np.searchsorted(landmarks, softmaxes)
    fits = (place > 0) & (place < len(landmarks))
    softmaxes, place = softmaxes[fits], place[fits]
    before, after = landmarks[place - 1], landmarks[place]
    product = sequence.kinds.are(Role.PRODUCT)
    scores = _largest(sequence.sizes.elements, sequence.stretch)[softmaxes]
    scores = np.where(scores > 0, scores, _moved(sequence, softmaxes))
    walls = np.r_[0, np.cumsum(sequence.kinds.are(Role.SORT, Role.NORM, Role.LOSS, Role.EMBEDDING))]
    written = 2.0 * scores / gbps  # in half precision
    longest = np.maximum(sequence.ns[before], sequence.ns[after])
    mine = product[before] & product[after] & (walls[after] == walls[before]) & (scores > 0)
    mine &= longest <= FAR_LARGER.value * written * _slower(sequence, device, before)
    mine &= ~spelled[softmaxes] | (sequence.phase[before] == sequence.phase[after])  # else it may be a loss
    rows = np.where(spelled[softmaxes], scores / USUAL_LENGTH.value, _rows(sequence, softmaxes))[mine]
    masked = _masked(sequence, before[mine], softmaxes[mine], scores[mine])
    softmaxes_of = zip(*(v.tolist() for v in (softmaxes[mine], place[mine], scores[mine], rows, masked)), strict=True)
    for at, where, all_scores, all_rows, causal in softmaxes_of:
        if np.isnan(left[at]):
            _mark(sequence, device, landmarks, product, at, where, all_scores, all_rows, left, causal=causal)
    return left


def _masked(sequence: Sequence, before: I64, softmaxes: I64, scores: F64) -> Mask:
    """Whether a kernel masks the scores of each softmax; backward, that of the forward pass on as many scores tells."""
    masks = sequence.data.profile.names_with(_MASKS)[sequence.data.name[sequence.ops]]
    count = np.r_[0, np.cumsum(masks)]
    masked: Mask = count[softmaxes + 1] > count[before]
    back = sequence.back[softmaxes]
    bare = scores[~back & ~masked]
    if len(bare):
        masked[back] = (np.abs(scores[back][:, None] / bare - 1) > SAME_SIZE.share).all(axis=1)
    else:
        masked[back] = True
    return masked


def _reached(sequence: Sequence) -> float:
    """The memory's rate as far as this trace shows it: what kernels that stream through large tensors usually reach."""
    large = sequence.by_grid & (sequence.ns >= STREAMS.ns) & ~sequence.optimizer
    return float(np.median(sequence.sizes.bytes[large] / sequence.ns[large])) if large.any() else 0.0


def _slower(sequence: Sequence, device: Gpu | None, at: I64) -> F64:
    """How many times as long products in these numbers take as in half precision, by the GPU's peak rates."""
    if device is None:
        half, own = 1.0, {"fp32": 1 / FLOAT_SLOWER.value, "tf32": 0.5}
    else:
        half = device.half or device.fp32
        own = {"fp32": device.fp32, "tf32": device.tf32 or device.fp32}
    ratio = np.array([half / own.get(name, half) for name in PRECISION])
    slower: F64 = ratio[sequence.kinds.precision[at]]
    return slower


def _mark(
    sequence: Sequence,
    device: Gpu | None,
    landmarks: I64,
    product: Mask,
    at: int,
    place: int,
    scores: float,
    rows: float,
    left: F64,
    *,
    causal: bool,
) -> None:
    """One softmax, between the landmarks before and at `place`."""
    first, last = int(landmarks[place - 1]), int(landmarks[place])
    back = bool(sequence.back[at])
    if back:
        first = _further(sequence, landmarks, product, place - 2, first)
        last = _further(sequence, landmarks, product, place + 1, last)
    group = np.arange(first, last + 1)
    if device is None:
        left[group[~sequence.heavy[group]]] = 0.0
        return
    head = _head(sequence, first, last, rows)
    rate = attention_rate(device, int(head), int(max(scores / rows, 1)), causal=causal, backward=back)
    flops = 4 * scores * head * (0.5 if causal else 1.0) * (2.5 if back else 1.0)
    good = flops / (rate.value * 1e3) if rate is not None else 0.0
    left[group] = min(1.0, good / max(float(sequence.ns[group].sum()), 1.0))


def _largest(elements: F64, stretch: I64) -> F64:
    """By position: the largest tensor of its stretch, 0 where none is known."""
    most = np.zeros(int(stretch[-1]) + 1 if len(stretch) else 1)
    np.maximum.at(most, stretch, np.nan_to_num(elements))
    return most[stretch]


def _moved(sequence: Sequence, at: I64) -> F64:
    """As many scores as each softmax moved, by shapes, or could have moved in its time; 0 where its name has no types.

    A row may have a block, whatever its length; where nothing but products stands beside it, its grid tells nothing.
    """
    names = sequence.data.profile.names.gather(sequence.data.name[sequence.ops[at]]).to_list()
    each = np.array([extent(name).bytes for name in names], dtype=float)
    moved: F64 = np.divide(np.nan_to_num(sequence.sizes.bytes[at]), each, out=np.zeros(len(at)), where=each > 0)
    return moved


def _further(sequence: Sequence, landmarks: I64, product: Mask, place: int, beside: int) -> int:
    """The product beyond one, where it is one of the same pair: of two gradients, each as much work as the other."""
    if not 0 <= place < len(landmarks) or not product[landmarks[place]]:
        return beside
    ratio = sequence.ns[landmarks[place]] / max(sequence.ns[beside], 1)
    return int(landmarks[place]) if 1 / LIKE_PRODUCT.value < ratio < LIKE_PRODUCT.value else beside


def _rows(sequence: Sequence, at: I64) -> F64:
    """Rows of each softmax. Within a warp it takes a row, others have a block for each row."""
    shape = launches(sequence.data, sequence.ops[at])
    warps = ~np.isnan(sequence.sizes.elements[at])
    return np.maximum(shape.blocks * np.where(warps, shape.rows, 1), 1).astype(np.float64)


def _head(sequence: Sequence, first: int, last: int, rows: float) -> float:
    """The size of a head: queries, keys and values are copied or cast before and after, rows times as much.

    Of several, the nearest to the products: further away are tensors of the whole layer.
    """
    at = np.r_[np.arange(max(first - 12, 0), first), np.arange(last + 1, min(last + 6, len(sequence.ops)))]
    ratio = sequence.sizes.elements[at] / rows
    nearest = np.abs(ratio[:, None] / _HEADS - 1) < SAME_SIZE.share
    away = np.where(at < first, first - at, at - last)
    fits = np.flatnonzero(nearest.any(axis=1))
    if not len(fits):
        return USUAL_HEAD.value
    return float(_HEADS[nearest[fits[np.argmin(away[fits])]]][-1])


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    if lost.good_ns:
        took = f"matmuls, masks and softmax between them take {about(lost.took_ns)}"
        fused = f"would take about {about(lost.good_ns)} for the same work, at the rate of torch's kernels"
    else:
        took = f"masks and softmax between its matmuls take {about(lost.took_ns)}"
        fused = "needs none of them; the matmuls count as they are, since the trace does not name a known GPU"
    return (
        title("attention-by-hand", kernels=several(lost.kernels, "kernel"), rank=lost.rank),
        f"{took} of the step on rank {lost.rank}, {lost.most}. Fused attention, which never writes the scores, {fused}",
        advice("attention-by-hand"),
    )


remedy, detect = claimed(ID, _worded)
