"""Matrix products that do not run on tensor cores, though the GPU has them.

Only kernels whose names tell are counted (`sgemm`, `simt`), never double precision or products with a vector.
What it could give back is the step replayed with them in half the time: tensor cores are several times as fast on
paper, but what a product gains depends on its shape, so that this is a careful guess.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.rank.data import COMPUTE
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, guilty, hosts, stage_of
from stepscope.findings.evidence.places import longest, places
from stepscope.findings.finding import Finding
from stepscope.findings.thresholds import TENSOR_CORES_GAIN
from stepscope.intervals.arrays import I64
from stepscope.model.kernel_names import short_names
from stepscope.model.range_names import short_range
from stepscope.model.units import about

ID = "no-tensor-cores"

#: GPUs without tensor (or matrix) cores.
_WITHOUT = r"(?i)\b(tesla )?(k\d0|m\d0|p4|p40|p100|gtx|titan xp?)\b|quadro [mp]"
#: Double precision, and products that no tensor core would speed up: by a vector, and sums of parts.
_OTHER = r"(?i)[dz]gemm|double|f64|gemv|dot_kernel|gemmSN_|gemmk1_|splitk_?reduce"
_FAMILIES = ["gemm", "convolution"]


def _slow_products(case: Case) -> dict[int, tuple[Host, I64]]:
    """By rank: products without tensor cores."""
    return {r: (h, ops) for r, h in hosts(case).items() if len(ops := _products(case, h))}


def remedy(case: Case) -> Change:
    """These products on tensor cores."""
    products = case.once(_slow_products)
    return Change(
        op_factor={r: (ops, np.full(len(ops), 1 / TENSOR_CORES_GAIN.value)) for r, (_, ops) in products.items()}
    )


def detect(case: Case) -> list[Finding]:
    products = case.once(_slow_products)
    spent = {r: int((h.data.end - h.data.start)[ops].sum()) for r, (h, ops) in products.items()}
    if not case.material(max(spent.values(), default=0)):
        return []
    ranks = guilty(spent)
    worst = max(ranks, key=lambda r: (spent[r], -r))
    host, ops = products[worst]
    by_name = pl.DataFrame({"name": host.data.name[ops], "ns": (host.data.end - host.data.start)[ops]})
    by_name = by_name.group_by("name").sum().sort("ns", "name", descending=True)
    top = short_range(short_names(host.profile.names.gather(by_name["name"][:1]))[0])
    return [
        Finding(
            ID,
            f"{len(ops) // case.steps:,} matrix products do not use tensor cores (on rank {worst})",
            case.credit(ID),
            "medium",
            f"they take {about(spent[worst] / case.steps)} of the step on rank {worst}; most of it `{top}`. Counted as "
            f"{TENSOR_CORES_GAIN.value:g} times as fast on tensor cores",
            "use bf16 or fp16 (torch.autocast), or allow TF32 for fp32: torch.set_float32_matmul_precision('high'); "
            "sizes that are multiples of 8 (bf16) or 4 (TF32)",
            ("kernels", "--by family"),
            ranks=ranks,
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in places(r, *_times(*products[r]))),
        )
    ]


def _times(host: Host, ops: I64) -> tuple[I64, I64]:
    return host.data.start[ops], host.data.end[ops]


def _products(case: Case, host: Host) -> I64:
    """Products of the step that are known not to use tensor cores."""
    gpus = case.profile.ranks.filter(pl.col("rank") == host.data.rank)["gpu"].drop_nulls()
    if gpus.str.contains(_WITHOUT).any():
        return np.empty(0, np.int64)
    data = host.data
    ops = np.flatnonzero((data.role == COMPUTE) & (data.start >= host.begin) & (data.start < host.end))
    ids, at = np.unique(data.name[ops], return_inverse=True)
    names, rules = case.profile.names.gather(ids), case.profile.taxonomy
    products = rules.family(names).is_in(_FAMILIES)
    slow = products & (rules.tensor_core(names) == False).fill_null(False) & ~names.str.contains(_OTHER)  # noqa: E712
    return ops[slow.to_numpy()[at.reshape(-1)]] if len(ops) else ops
