"""Matrix products and convolutions that do not run on tensor cores, though the GPU has them.

Only kernels whose names tell are counted (`sgemm`, `simt`, cuDNN's convolutions of fp32), never double precision or
products with a vector. What it could save is the step replayed with them in half precision, as fast as the GPU's
peak rates let expect (`model/gpus.py`); the evidence has TF32 alone, too. Products that are too short to be bound by
compute are counted as twice as fast, no more; so are all where the trace names no GPU. Where hardly any product of the
step uses them, the numbers between products halve, too: what autocast computes in half precision then moves
half the bytes, and convolutions need no other layout.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.rank.data import COMPUTE
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, guilty, hosts, stage_of
from stepscope.findings.evidence.machines import gpu_name, on_amd
from stepscope.findings.evidence.places import longest, places
from stepscope.findings.evidence.shown import kernel
from stepscope.findings.finding import Finding
from stepscope.findings.texts import title
from stepscope.findings.thresholds import LONG_KERNEL
from stepscope.intervals.arrays import F64, I64
from stepscope.model.gpus import Gain, Gpu, gpu_of, has_tensor_cores, tensor_core_gain
from stepscope.model.kernel_names import short_names
from stepscope.model.range_names import short_range
from stepscope.model.statement import several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

MIXED_PRECISION = Threshold(
    25.0,
    "% of the number of products without tensor cores",
    "where so many already use them, the rest is an island in a model of half precision: around it nothing changes",
    ("tests/findings/test_waste_pairs.py",),
)
TENSOR_CORES_REACH = Threshold(
    85.0,
    "% of the ratio of peak rates",
    "10240 x 10240 matrices take 0.11 s in fp32 and 0.016 s in TF32 on an A100 (PyTorch's notes on CUDA): 6.9 times as "
    "fast, of 8 on paper",
    ("tests/model/test_gpus.py::test_what_products_gain", "public/a100_lm2.7b_nvtx.sqlite"),
)
TENSOR_CORES_GAIN = Threshold(
    2.0,
    "times as fast",
    "the least that is promised: products that are small or bound by memory gain no more; and all that is, where the "
    "trace names no GPU",
    ("public/a100_lm2.7b_nvtx.sqlite", "tests/findings/test_host_by_hand.py::test_products_without_tensor_cores"),
)


ID = "no-tensor-cores"
_Which = Literal["low", "usual", "high", "tf32"]

#: Double precision, and products that no tensor core would speed up: by a vector, and sums of parts.
_OTHER = r"(?i)[dz]gemm|double|f64|gemv|dot_kernel|gemmSN_|gemmk1_|splitk_?reduce"
_FAMILIES = ["gemm", "convolution"]
#: What autocast leaves in half precision behind a product: it moves half the bytes there. Losses, softmax and norms
#: over features stay in float, and so does the optimizer.
_HALVED = ["elementwise", "copy", "pooling", "random"]
_BATCH_NORM = r"(?i)batch_?norm|\bbn_(fw|bw)"
_FLOAT = r"\bfloat\b"
_LAYOUT = r"nchwToNhwc|nhwcToNchw"
_OPTIMIZER = r"(?i)^optimizer"


class _Slow(Struct, frozen=True):
    """Of one rank: products without tensor cores; and what comes along with them where all of them are so: changes of
    layout for convolutions in float, and kernels that move floats."""

    host: Host
    products: I64
    layouts: I64
    floats: I64

    def took(self, ops: I64) -> int:
        return int((self.host.data.end - self.host.data.start)[ops].sum())


def _slow_products(case: Case) -> dict[int, _Slow]:
    """By rank."""
    computed = {r: _computed(case, h) for r, h in hosts(case).items()}
    kinds = _kinds(case, computed)
    slow_products = {}
    for rank, host in hosts(case).items():
        ops = computed[rank]
        kind = kinds[host.data.name[ops]]
        if (kind == _SLOW).any():
            slow_products[rank] = _of_rank(host, ops, kind)
    return slow_products


def _of_rank(host: Host, ops: I64, kind: I64) -> _Slow:
    products = ops[kind == _SLOW]
    if (kind == _FAST).sum() > MIXED_PRECISION.share * len(products):
        return _Slow(host, products, ops[:0], ops[:0])
    floats = ops[kind == _FLOATS]
    floats = floats[~host.data.within(floats, _OPTIMIZER)]
    return _Slow(host, products, ops[kind == _LAYOUTS], floats)


def remedy(case: Case) -> Change:
    """These products on tensor cores."""
    return _on_tensor_cores(case, "usual")


def interval(case: Case) -> tuple[Change, Change]:
    """The same with the least and with the most that they could gain."""
    return _on_tensor_cores(case, "low"), _on_tensor_cores(case, "high")


def _on_tensor_cores(case: Case, which: _Which) -> Change:
    return Change(op_factor={r: _factors(case, slow, which) for r, slow in case.once(_slow_products).items()})


def _factors(case: Case, slow: _Slow, which: _Which) -> tuple[I64, F64]:
    """Ops, and the part of its time that each would take; short products never gain more than the least."""
    gain, ops, data = _gain(case, slow.host.data.rank), slow.products, slow.host.data
    long = (data.end - data.start)[ops] >= LONG_KERNEL.ns
    usual = (gain.tf32 or 1.0) if which == "tf32" else getattr(gain, which)
    factor = np.where(long | (which == "low"), usual, max(gain.low, 1 / TENSOR_CORES_GAIN.value))
    if which in ("low", "tf32") or gpu_of(gpu_name(case, data.rank)) is None:
        return ops, factor
    along = np.concatenate([slow.layouts, slow.floats])
    less = np.concatenate([np.zeros(len(slow.layouts)), np.full(len(slow.floats), 0.5)])
    return np.concatenate([ops, along]), np.concatenate([factor, less])


def _gain(case: Case, rank: int) -> Gain:
    """What products gain on the rank's GPU; nothing where it has no tensor cores."""
    gain = tensor_core_gain(gpu_name(case, rank), TENSOR_CORES_GAIN.value, TENSOR_CORES_REACH.share)
    return gain or Gain(1.0, 1.0, 1.0, {})


def detect(case: Case) -> list[Finding]:
    products = case.once(_slow_products)
    spent = {r: slow.took(slow.products) for r, slow in products.items()}
    if not case.material(max(spent.values(), default=0)):
        return []
    ranks = guilty(spent)
    worst = max(ranks, key=lambda r: (spent[r], -r))
    slow = products[worst]
    data, ops = slow.host.data, slow.products
    least, most = interval(case)
    by_name = pl.DataFrame({"name": data.name[ops], "ns": (data.end - data.start)[ops]})
    by_name = by_name.group_by("name").sum().sort("ns", "name", descending=True)
    top = short_names(case.profile.names.gather(by_name["name"][:1]))[0]
    all_of_it = int(kernel(case, worst, top)["total_ns"])
    return [
        Finding(
            ID,
            title(
                "no-tensor-cores",
                products=several(len(ops), "matmul or convolution does", "matmuls or convolutions do"),
                worst=worst,
            ),
            case.credit(ID),
            "certain",
            f"they take {about(spent[worst])} of the step on rank {worst}; mainly `{short_range(top)}` "
            f"({about(all_of_it)} in all). The estimate assumes that they are {1 / _gain(case, worst).usual:.1f} "
            f"times as fast on tensor cores: {_gain(case, worst).why['usual']}{_along(slow)}{_by_tf32(case, worst)}",
            _advice(gpu_of(gpu_name(case, worst)), on_amd(case, ranks)),
            ("kernels", f"--rank {worst}"),
            ranks=ranks,
            figures=(all_of_it,),
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in places(r, *_times(products[r]))),
            low_ns=case.credit(ID, least),
            high_ns=case.credit(ID, most),
        )
    ]


def _along(slow: _Slow) -> str:
    """What else would be shorter, in words."""
    texts = []
    if moved := slow.took(slow.floats):
        texts.append(f"{about(moved)} of kernels that move floats, at half precision")
    if turned := slow.took(slow.layouts):
        texts.append(f"{about(turned)} of layout changes gone, with tensors in channels_last")
    return f"; {' and '.join(texts)}" if texts else ""


def _by_tf32(case: Case, rank: int) -> str:
    """What TF32 alone would give: it needs no other numbers."""
    if _gain(case, rank).tf32 is None:
        return ""
    return f". TF32 alone would save {about(case.credit(ID, _on_tensor_cores(case, 'tf32')))}"


def _advice(gpu: Gpu | None, amd: bool) -> str:
    """What to switch on: only what this GPU has, and only what is faster there."""
    half, sizes = "use bf16 or fp16 (torch.autocast)", "sizes that are multiples of 8"
    tf32 = (
        "allow TF32 for fp32: torch.set_float32_matmul_precision('high'), and for convolutions "
        "torch.backends.cudnn.allow_tf32"
    )
    if gpu is None:
        return half if amd else f"{half}, or {tf32} (Ampere and later; before, fp16 alone); {sizes}"
    if gpu.bf16 is None:
        return f"use fp16 (torch.autocast, with a GradScaler): this GPU has no other tensor cores; {sizes}"
    if gpu.tf32 is not None and gpu.tf32 > gpu.fp32:
        return f"{half}, or {tf32}{' and HIPBLASLT_ALLOW_TF32=1' * amd}; {sizes} (bf16) or 4 (TF32)"
    return f"{half}{'' if amd else ': TF32 is no faster than fp32 on this GPU'}; {sizes}"


def _times(slow: _Slow) -> tuple[I64, I64]:
    return slow.host.data.start[slow.products], slow.host.data.end[slow.products]


def _computed(case: Case, host: Host) -> I64:
    """Compute of the step, where the GPU may have tensor cores."""
    if has_tensor_cores(gpu_name(case, host.data.rank)) is False:
        return np.empty(0, np.int64)
    ops: I64 = host.window.ops[host.data.role[host.window.ops] == COMPUTE]
    return ops


#: Of a name: a product without tensor cores, or with them, a change of layout, a kernel that moves floats.
_SLOW, _FAST, _LAYOUTS, _FLOATS = range(1, 5)


def _kinds(case: Case, computed: dict[int, I64]) -> I64:
    """By name of the string table: thousands of ranks run kernels of the same names."""
    kinds = np.zeros(len(case.profile.names), dtype=np.int64)
    used = np.zeros(len(kinds), dtype=bool)
    for rank, ops in computed.items():
        used[case.data_of(rank).name[ops]] = True
    ids = np.flatnonzero(used)
    if not len(ids):
        return kinds
    names, rules = case.profile.names.gather(ids), case.profile.taxonomy
    frame = pl.DataFrame({"name": names, "family": rules.family(names), "tensor": rules.tensor_core(names)})
    product = pl.col("family").is_in(_FAMILIES) & ~pl.col("name").str.contains(_OTHER)
    halved = pl.col("family").is_in(_HALVED) | pl.col("name").str.contains(_BATCH_NORM)
    is_float = pl.col("name").str.contains(_FLOAT)
    kind = (
        pl.when(pl.col("name").str.contains(_LAYOUT) & is_float)
        .then(_LAYOUTS)
        .when(product & (pl.col("tensor") == False))  # noqa: E712
        .then(_SLOW)
        .when(product & pl.col("tensor"))
        .then(_FAST)
        .when(halved & is_float)
        .then(_FLOATS)
        .otherwise(0)
    )
    kinds[ids] = frame.select(kind.alias("kind"))["kind"].to_numpy()
    return kinds
