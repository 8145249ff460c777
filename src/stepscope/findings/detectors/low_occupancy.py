"""Long kernels that leave most of the GPU empty: fewer blocks than half its multiprocessors, with nothing beside them.

What it could save is the step replayed with each of them as fast as if its blocks spread over the multiprocessors
half as well as they could. It is an upper bound of a kind: whether the work can be split further, a trace cannot tell.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.rank.data import COMPUTE
from stepscope.derive.replay.change import Change
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, guilty, hosts, stage_of
from stepscope.findings.evidence.machines import gpu_name
from stepscope.findings.evidence.places import longest, places
from stepscope.findings.evidence.shown import kernel
from stepscope.findings.finding import Finding, Place
from stepscope.findings.texts import advice, title
from stepscope.findings.thresholds import LONG_KERNEL
from stepscope.intervals import covered, union
from stepscope.intervals.arrays import F64, I64
from stepscope.model.gpus import gpu_of
from stepscope.model.kernel_names import short_names
from stepscope.model.range_names import short_range
from stepscope.model.statement import several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

FEW_BLOCKS = Threshold(
    50.0,
    "% of the multiprocessors",
    "fewer blocks leave more than half of them empty, whatever a block does",
    ("tests/findings/test_host_by_hand.py::test_few_blocks",),
)


ID = "low-occupancy"


def _sparse(case: Case) -> dict[int, tuple[I64, F64]]:
    """By rank: kernels that leave most of the GPU empty, and the factor by which they would be shorter."""
    if _shared(case):
        raise CannotAnswer(
            "ranks share a GPU, or may share one: what runs beside a kernel is not known",
            "give each rank a GPU of its own, and use traces that name their hosts",
        )
    units = {r: _units(case, r) for r in hosts(case)}
    if not any(units.values()):
        raise CannotAnswer(
            "the trace does not say how many multiprocessors the GPU has", "`stepscope info` names the GPU"
        )
    shapes = dict(case.profile.launch_shapes())
    sparse = {r: _few_blocks(h, shapes[r], units[r]) for r, h in hosts(case).items()}
    return {r: (ops, factor) for r, (ops, factor) in sparse.items() if len(ops)}


def remedy(case: Case) -> Change:
    """Their blocks spread half as well as they could."""
    return Change(op_factor=case.once(_sparse))


def detect(case: Case) -> list[Finding]:
    sparse = case.once(_sparse)
    spent = {r: int((hosts(case)[r].data.end - hosts(case)[r].data.start)[ops].sum()) for r, (ops, _) in sparse.items()}
    if not case.material(max(spent.values(), default=0)):
        return []
    ranks = guilty(spent)
    worst = max(ranks, key=lambda r: (spent[r], -r))
    data, (ops, _) = hosts(case)[worst].data, sparse[worst]
    by_name = pl.DataFrame({"name": data.name[ops], "ns": (data.end - data.start)[ops]}).group_by("name").sum()
    top = short_names(case.profile.names.gather(by_name.sort("ns", "name", descending=True)["name"][:1]))[0]
    all_of_it = int(kernel(case, worst, top)["total_ns"])
    return [
        Finding(
            ID,
            title("low-occupancy", kernels=several(len(ops), "kernel leaves", "kernels leave"), worst=worst),
            case.credit(ID),
            "certain",
            f"they take {about(spent[worst])} of the step on rank {worst} while nothing else runs, with "
            f"fewer blocks than half of its {_units(case, worst)} multiprocessors; mainly `{short_range(top)}` "
            f"({about(all_of_it)} in all)",
            advice("low-occupancy"),
            ("kernels", f"--rank {worst}"),
            ranks=ranks,
            figures=(all_of_it,),
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in _longest(case, r, sparse[r][0])),
            bound=True,
        )
    ]


def _shared(case: Case) -> bool:
    """Whether two ranks are on one device of one host; torch's traces name no host, and count as of one."""
    ranks = case.profile.ranks.filter(pl.col("device").is_not_null())
    unnamed = pl.col("host") == pl.concat_str(pl.lit("rank"), pl.col("rank").cast(pl.String))
    places = ranks.select(pl.when(unnamed).then(pl.lit(None)).otherwise(pl.col("host")).alias("host"), "device")
    return bool(places.is_duplicated().any())


def _longest(case: Case, rank: int, ops: I64) -> list[Place]:
    data = hosts(case)[rank].data
    return places(rank, data.start[ops], data.end[ops])


def _units(case: Case, rank: int) -> int:
    """Multiprocessors of the rank's GPU, 0 where they are not known."""
    gpu = gpu_of(gpu_name(case, rank))
    return gpu.units if gpu else 0


def _few_blocks(host: Host, shapes: pl.DataFrame, units: int) -> tuple[I64, F64]:
    """Kernels of few blocks with nothing beside them, and the factor by which they would be shorter."""
    data = host.data
    grid = shapes.select(pl.col("grid_x") * pl.col("grid_y") * pl.col("grid_z")).to_series().fill_null(0).to_numpy()
    in_step = np.zeros(len(data.start), dtype=bool)
    in_step[host.window.ops] = data.role[host.window.ops] == COMPUTE
    few = in_step & (grid > 0) & (grid < FEW_BLOCKS.share * units) & (data.end - data.start >= LONG_KERNEL.ns)
    ops = np.flatnonzero(few)
    others = np.flatnonzero((data.role == COMPUTE) & ~few)
    beside = covered(data.start[ops], data.end[ops], union(data.start[others], data.end[others]))
    ops = ops[2 * beside < (data.end - data.start)[ops]]
    return ops, np.minimum(grid[ops] / (FEW_BLOCKS.share * max(units, 1)), 1.0)
