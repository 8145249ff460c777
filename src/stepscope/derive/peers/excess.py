"""What ranks took longer than others that do the same: compute, and the host's own time.

Compute is compared between ranks that do the same work: those of one pipeline stage, by their labels or, without
labels, by how often they communicate and with how many. A rank without such a peer is compared kernel by kernel with
all ranks that run kernels of that name: most of its compute must be slower. Time that the host was late is compared
between all ranks. The usual is the lower quartile: a fault may well be on half of the ranks (a slow node of two), and
it never makes anything faster. An excess counts if it is material (a share of the capture) and beyond how far the
better ranks differ among themselves. Ranks that recorded less than their peers are left out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.derive.comm.across import Across
from stepscope.model.labels import setups

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

#: Share of the capture below which an excess is not worth a name, and how many times the usual spread it must exceed.
MATERIAL = 0.005
_SPREADS = 6.0
#: A rank with less than this share of its peers' communications is compared with nobody.
_SHORT = 0.9


def own_excess(a: Across) -> pl.DataFrame:
    """Per rank: compute_ns, host_ns and data_ns beyond the usual; zero where not material.

    `peers`: how many do the same; `whole`: false where the rank recorded too little to be compared.
    """
    own = a.facts["own"].sort("rank")
    ranks = own["rank"].to_list()
    stage = alike(a, ranks)
    stages = np.array([stage[r] for r in ranks])
    least = MATERIAL * float(own["span_ns"].max() or 0)  # type: ignore[arg-type]
    met = dict(a.facts["chain"].group_by("rank").len().iter_rows())
    whole = _whole(np.array([met.get(r, 0) for r in ranks]), stages)
    compute = own["compute_ns"].to_numpy().astype(np.float64)
    beyond = np.zeros(len(compute))
    peers = np.array([int(((stages == s) & whole).sum()) for s in stages]) - whole
    for s in np.unique(stages):
        mine = np.flatnonzero((stages == s) & whole)
        if len(mine) > 1:
            beyond[mine] = _beyond(compute[mine])
    alone = np.flatnonzero(whole & (peers == 0))
    if len(alone):
        by_kernel = _by_kernel(a.facts["kernels"])
        beyond[alone] = [by_kernel.get(ranks[i], 0.0) for i in alone.tolist()]
    columns = {"host": own["host_ns"], "data": own["data_ns"], "elsewhere": own["host_ns"] - own["data_ns"]}
    late = {name: np.zeros(len(ranks)) for name in columns}
    for name, column in columns.items():
        late[name][whole] = _beyond(column.to_numpy().astype(np.float64)[whole])
    return own.select(
        "rank",
        "named",
        pl.Series("compute_ns", _material(beyond, least)),
        pl.Series("host_ns", _material(late["host"], least)),
        pl.Series("data_ns", _material(late["data"], least)),
        pl.Series("elsewhere_ns", np.maximum(late["elsewhere"], 0)),
        pl.Series("peers", peers),
        pl.Series("whole", whole),
    )


def _whole(met: I64, stages: npt.NDArray[np.str_]) -> npt.NDArray[np.bool_]:
    """Ranks that recorded about as many communications as those that do the same: the others stopped early.

    That is a measure of work which no slowness changes; neither time nor the number of kernels is.
    """
    most = np.array([met[stages == s].max() for s in stages])
    found: npt.NDArray[np.bool_] = met >= _SHORT * most
    return found


def _beyond(values: F64) -> F64:
    """How far each is above the usual, less what the better ones differ by."""
    if len(values) < 2:
        return np.zeros(len(values))
    ordered = np.sort(values)
    # Of two, the better one; of more, never the best itself: its distance to the usual says how much is chance.
    usual = ordered[max((len(ordered) - 1) // 4, min(1, len(ordered) - 2))]
    spread = usual - ordered[0]
    excess = values - usual
    beyond: F64 = np.where(excess > _SPREADS * spread, excess, np.minimum(excess, 0))
    return beyond


def _material(excess: F64, least: float) -> I64:
    return np.where(excess >= least, excess, 0).astype(np.int64)


def alike(a: Across, ranks: list[int]) -> dict[int, str]:
    """Which ranks do the same work: the same pipeline coordinate, else the same communication."""
    labels = setups(a.ranks)
    if len(labels) == len(ranks):
        return {r: str(labels[r].at("pp")) for r in ranks}
    sizes = a.meetings.select("meeting", "kind", "size")
    counts = (
        a.matched.sides.select("rank", "meeting")
        .join(sizes, on="meeting")
        .group_by("rank", "kind", "size")
        .len()
        .sort("rank", "kind", "size")
        .group_by("rank", maintain_order=True)
        .agg(pl.concat_str("kind", "size", "len", separator=":").str.join(" ").alias("text"))
    )
    texts = dict(counts.iter_rows())
    return {r: texts.get(r, "") for r in ranks}


def _by_kernel(kernels: pl.DataFrame) -> dict[int, float]:
    """Per rank, compute beyond the usual, from how much slower the half of it is that is least slow.

    One name covers many shapes, and stages differ in some of them; a slow GPU is slow in all.
    """
    mean = (pl.col("ns") / pl.col("n")).alias("mean")
    usual = kernels.with_columns(mean).group_by("name").agg(pl.col("mean").median().alias("usual"), pl.len().alias("k"))
    joined = kernels.with_columns(mean).join(usual.filter((pl.col("k") > 1) & (pl.col("usual") > 0)), on="name")
    ranked = (
        joined.with_columns((pl.col("mean") / pl.col("usual")).alias("ratio"))
        .sort("rank", "ratio")
        .with_columns((pl.col("ns").cum_sum().over("rank") / pl.col("ns").sum().over("rank")).alias("part"))
        .filter(pl.col("part") >= 0.5)
        .group_by("rank", maintain_order=True)
        .agg(pl.col("ratio").first())
    )
    if ranked.height < 2:
        return {}
    slower = _beyond(ranked["ratio"].to_numpy())
    total = dict(kernels.group_by("rank").agg(pl.col("ns").sum()).iter_rows())
    rows = zip(ranked["rank"].to_list(), ranked["ratio"].to_list(), slower.tolist(), strict=True)
    return {rank: total[rank] * x / ratio for rank, ratio, x in rows}
