"""Matrix products that do not run on tensor cores, though the GPU has them.

Only kernels whose names tell are counted (`sgemm`, `simt`), never double precision or products with a vector.
What it could give back is the step replayed with them as fast as the GPU's peak rates let expect (`model/gpus.py`): by
TF32 where that is faster than fp32, else by half precision. Products that are too short to be bound by compute are
counted as twice as fast, no more; so are all where the trace names no GPU.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl

from stepscope.derive.rank.data import COMPUTE
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, guilty, hosts, stage_of
from stepscope.findings.evidence.machines import gpu_name, on_amd
from stepscope.findings.evidence.places import longest, places
from stepscope.findings.evidence.shown import kernel
from stepscope.findings.finding import Finding
from stepscope.findings.thresholds import LONG_KERNEL, TENSOR_CORES_GAIN, TENSOR_CORES_REACH
from stepscope.intervals.arrays import F64, I64, Mask
from stepscope.model.gpus import Gain, Gpu, gpu_of, has_tensor_cores, tensor_core_gain
from stepscope.model.kernel_names import short_names
from stepscope.model.range_names import short_range
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "no-tensor-cores"

#: Double precision, and products that no tensor core would speed up: by a vector, and sums of parts.
_OTHER = r"(?i)[dz]gemm|double|f64|gemv|dot_kernel|gemmSN_|gemmk1_|splitk_?reduce"
_FAMILIES = ["gemm", "convolution"]


def _slow_products(case: Case) -> dict[int, tuple[Host, I64]]:
    """By rank: products without tensor cores."""
    computed = {r: _computed(case, h) for r, h in hosts(case).items()}
    slow = _slow_names(case, computed)
    return {r: (h, ops) for r, h in hosts(case).items() if len(ops := computed[r][slow[h.data.name[computed[r]]]])}


def remedy(case: Case) -> Change:
    """These products on tensor cores."""
    return _on_tensor_cores(case, "usual")


def interval(case: Case) -> tuple[Change, Change]:
    """The same with the least and with the most that they could gain."""
    return _on_tensor_cores(case, "low"), _on_tensor_cores(case, "high")


def _on_tensor_cores(case: Case, which: Literal["low", "usual", "high"]) -> Change:
    products = case.once(_slow_products)
    return Change(op_factor={r: (ops, _factors(case, h, ops, which)) for r, (h, ops) in products.items()})


def _factors(case: Case, host: Host, ops: I64, which: Literal["low", "usual", "high"]) -> F64:
    """The part of its time that each product would take; short ones never gain more than the least."""
    gain = _gain(case, host.data.rank)
    long = (host.data.end - host.data.start)[ops] >= LONG_KERNEL.ns
    return np.where(long | (which == "low"), getattr(gain, which), max(gain.low, 1 / TENSOR_CORES_GAIN.value))


def _gain(case: Case, rank: int) -> Gain:
    """What products gain on the rank's GPU; nothing where it has no tensor cores."""
    found = tensor_core_gain(gpu_name(case, rank), TENSOR_CORES_GAIN.value, TENSOR_CORES_REACH.share)
    return found or Gain(1.0, 1.0, 1.0, {})


def detect(case: Case) -> list[Finding]:
    products = case.once(_slow_products)
    spent = {r: int((h.data.end - h.data.start)[ops].sum()) for r, (h, ops) in products.items()}
    if not case.material(max(spent.values(), default=0)):
        return []
    ranks = guilty(spent)
    worst = max(ranks, key=lambda r: (spent[r], -r))
    host, ops = products[worst]
    least, most = interval(case)
    by_name = pl.DataFrame({"name": host.data.name[ops], "ns": (host.data.end - host.data.start)[ops]})
    by_name = by_name.group_by("name").sum().sort("ns", "name", descending=True)
    top = short_names(host.profile.names.gather(by_name["name"][:1]))[0]
    all_of_it = int(kernel(case, worst, top)["total_ns"])
    return [
        Finding(
            ID,
            f"{several(len(ops), 'matrix product does', 'matrix products do')} not use tensor cores (on rank {worst})",
            case.credit(ID),
            "certain",
            f"they take {about(spent[worst])} of the step on rank {worst}; most of it `{short_range(top)}` "
            f"({about(all_of_it)} in all). Counted as {1 / _gain(case, worst).usual:.1f} times as fast on tensor "
            f"cores: {_gain(case, worst).why['usual']}",
            _advice(gpu_of(gpu_name(case, worst)), on_amd(case, ranks)),
            ("kernels", f"--rank {worst}"),
            ranks=ranks,
            figures=(all_of_it,),
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in places(r, *_times(*products[r]))),
            low_ns=case.credit(ID, least),
            high_ns=case.credit(ID, most),
        )
    ]


def _advice(gpu: Gpu | None, amd: bool) -> str:
    """What to switch on: only what this GPU has, and only what is faster there."""
    half, sizes = "use bf16 or fp16 (torch.autocast)", "sizes that are multiples of 8"
    tf32 = "allow TF32 for fp32: torch.set_float32_matmul_precision('high')"
    if gpu is None:
        return half if amd else f"{half}, or {tf32} (Ampere and later; before, fp16 alone); {sizes}"
    if gpu.bf16 is None:
        return f"use fp16 (torch.autocast, with a GradScaler): this GPU has no other tensor cores; {sizes}"
    if gpu.tf32 is not None and gpu.tf32 > gpu.fp32:
        return f"{half}, or {tf32}{' and HIPBLASLT_ALLOW_TF32=1' * amd}; {sizes} (bf16) or 4 (TF32)"
    return f"{half}{'' if amd else ': TF32 is no faster than fp32 on this GPU'}; {sizes}"


def _times(host: Host, ops: I64) -> tuple[I64, I64]:
    return host.data.start[ops], host.data.end[ops]


def _computed(case: Case, host: Host) -> I64:
    """Compute of the step, where the GPU may have tensor cores."""
    if has_tensor_cores(gpu_name(case, host.data.rank)) is False:
        return np.empty(0, np.int64)
    ops: I64 = host.window.ops[host.data.role[host.window.ops] == COMPUTE]
    return ops


def _slow_names(case: Case, computed: dict[int, I64]) -> Mask:
    """Names of products that are known not to use tensor cores: thousands of ranks run kernels of the same names."""
    slow = np.zeros(len(case.profile.names), dtype=bool)
    used = slow.copy()
    for rank, ops in computed.items():
        used[case.data_of(rank).name[ops]] = True
    ids = np.flatnonzero(used)
    names, rules = case.profile.names.gather(ids), case.profile.taxonomy
    products = rules.family(names).is_in(_FAMILIES)
    known = products & (rules.tensor_core(names) == False).fill_null(False) & ~names.str.contains(_OTHER)  # noqa: E712
    slow[ids] = known.to_numpy()
    return slow
