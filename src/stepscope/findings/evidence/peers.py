"""Compute of each rank beside that of its peers: ranks that do the same work, kernel by kernel.

Peers are the other ranks of a pipeline stage (by labels or, without labels, those that communicate as often with as
many). A rank without any is compared by the mean of its kernels with all ranks that run kernels of that name. What is
usual is the median of the others: a rank is never compared with itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from stepscope.derive.peers.excess import alike
from stepscope.derive.rank.data import COMPUTE, ranks_of
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.model.labels import setups

#: Kernels of one name that take no more than this beyond their peers' are as long: clocks of like GPUs differ.
ALIKE = 1.03


@dataclass(frozen=True)
class Compared:
    """Of one rank: a row per kernel name with `n`, `ns`, and `like_n`, `like_ns` of its peers."""

    rank: int
    kernels: pl.DataFrame
    alone: bool  # compared by kernel names only

    @property
    def excess_ns(self) -> int:
        """Compute beyond that of its peers, all kernels together: some may well be shorter."""
        return max(int((self.kernels["ns"] - self.kernels["like_ns"]).sum()), 0)

    @property
    def clear(self) -> bool:
        """Whether it is more than chance: not made up for by kernels that are shorter, and a share of its compute."""
        longer = float((self.kernels["ns"] - self.kernels["like_ns"]).clip(0).sum())
        return 2 * self.excess_ns > longer and self.excess_ns > (ALIKE - 1) * float(self.kernels["like_ns"].sum())

    @property
    def slower(self) -> pl.DataFrame:
        """Kernels that take longer in all than the peers' do, most beyond first."""
        found = self.kernels.filter(pl.col("ns") > ALIKE * pl.col("like_ns"))
        return found.sort([pl.col("ns") - pl.col("like_ns"), "name"], descending=[True, False])

    def ratio_at(self, share: float) -> float:
        """How much slower the rank is in all but this share of its compute, by its peers' time."""
        known = self.kernels.filter(pl.col("like_ns") > 0)
        table = known.with_columns((pl.col("ns") / pl.col("like_ns")).alias("ratio")).sort("ratio")
        part = table["like_ns"].cum_sum() / max(float(table["like_ns"].sum()), 1.0)
        above = table.filter(part >= share)
        return float(above["ratio"][0]) if above.height else 1.0

    def factors(self, keep: float = 0.0) -> dict[str, float]:
        """For a replay: what makes its kernels as long as its peers', but for a share of the difference."""
        ratio = (pl.col("like_ns") + keep * (pl.col("ns") - pl.col("like_ns"))) / pl.col("ns")
        table = self.kernels.filter(pl.col("ns") > 0).select("name", ratio.alias("factor"))
        return dict(table.filter((pl.col("factor") * ALIKE < 1) | (pl.col("factor") > ALIKE)).iter_rows())


def stages(case: Case) -> dict[int, str]:
    """Ranks that do the same work have the same text; by labels, the place in the pipeline."""
    try:
        met = case.path.met
    except CannotAnswer:
        met = None
    ranks = list(case.ranks)
    if met is not None:
        return alike(met, ranks)
    labels = setups(case.profile.ranks)
    return {r: str(labels[r].at("pp")) if r in labels else "" for r in ranks}


def pipeline_stage(case: Case, rank: int) -> str | None:
    """`pipeline stage 1`, where there is a pipeline."""
    setup = setups(case.profile.ranks).get(rank)
    return f"pipeline stage {setup.at('pp')}" if setup and setup.size("pp") > 1 else None


def kernels(case: Case) -> pl.DataFrame:
    """Compute kernels of the step: rank, name, n, ns."""
    frames = []
    for data in ranks_of(case.profile):
        if data.rank not in case.windows:
            continue
        ops = case.windows[data.rank].ops
        ops = ops[data.role[ops] == COMPUTE]
        frame = pl.DataFrame({"id": data.name[ops], "ns": (data.end - data.start)[ops]})
        frame = frame.group_by("id").agg(pl.len().cast(pl.Int64).alias("n"), pl.col("ns").sum()).sort("id")
        frames.append(frame.with_columns(pl.lit(data.rank, pl.Int64).alias("rank")))
    return pl.concat(frames).with_columns(case.profile.names.gather(pl.concat(frames)["id"]).alias("name"))


def compared(case: Case) -> dict[int, Compared]:
    """Every rank beside its peers."""
    if len(case.ranks) < 2:
        return {}
    stage = case.once(stages)
    table = case.once(kernels).with_columns(pl.col("rank").replace_strict(stage, return_dtype=pl.String).alias("stage"))
    size = {s: list(stage.values()).count(s) for s in stage.values()}
    found = {}
    for rank, mine in table.partition_by("rank", as_dict=True, maintain_order=True).items():
        me = int(rank[0])
        alone = size[stage[me]] < 2
        others = table.filter(pl.col("rank") != me)
        if not alone:
            others = others.filter(pl.col("stage") == stage[me])
        like = others.group_by("name").agg(
            pl.col("n").median().alias("like_n"),
            pl.col("ns").median().alias("like_ns"),
            (pl.col("ns") / pl.col("n")).median().alias("like_mean"),
        )
        both = mine.join(like, on="name", how="inner" if alone else "left", maintain_order="left")
        if alone:  # other stages have more or fewer of them
            both = both.with_columns(
                (pl.col("like_mean") * pl.col("n")).alias("like_ns"), pl.col("n").cast(pl.Float64).alias("like_n")
            )
        else:
            both = _only_here(both, others)
        found[me] = Compared(me, both.select("name", "n", "ns", "like_n", "like_ns"), alone)
    return found


def _only_here(mine: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """Kernels that no peer runs count as far as the rank computes more than its peers: else they replace others."""
    alien = pl.col("like_ns").is_null()
    ns = float(mine.filter(alien)["ns"].sum())
    usual = float(others.group_by("rank").agg(pl.col("ns").sum())["ns"].median() or 0)  # type: ignore[arg-type]
    beyond = min(max(float(mine["ns"].sum()) - usual, 0.0) / ns, 1.0) if ns else 0.0
    return mine.with_columns(
        pl.when(alien).then(pl.col("ns") * (1 - beyond)).otherwise("like_ns").alias("like_ns"),
        pl.when(alien).then(pl.col("n") * (1 - beyond)).otherwise("like_n").alias("like_n"),
    )
