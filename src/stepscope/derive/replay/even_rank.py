"""A change: one rank as fast as the median of its peers, in its kernels and on its host."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.graph.releases import releases
from stepscope.derive.rank.data import COMPUTE, ranks_of
from stepscope.derive.replay.change import Change
from stepscope.derive.replay.graph import Step
from stepscope.errors import BadInput
from stepscope.model.labels import parse_setup
from stepscope.model.profile import Profile


def paces(part: Profile, steps: dict[int, Step]) -> pl.DataFrame:
    """By rank and kernel: how often and how long on average; with a null kernel, the host's own time per launch."""
    frames = []
    for data in ranks_of(part):
        if data.rank not in steps:
            continue
        begin, last, _ = steps[data.rank]
        ops = np.flatnonzero((data.start >= begin) & (data.start <= data.start[last]) & (data.role == COMPUTE))
        frame = pl.DataFrame({"name": data.name[ops], "ns": (data.end - data.start)[ops]})
        frame = frame.group_by("name").agg(pl.len().alias("n"), pl.col("ns").mean().alias("mean"))
        frame = frame.with_columns(part.names.gather(frame["name"]).alias("name"))
        launched = data.launched_at[ops]
        launched = launched[launched >= begin]
        w = releases(data).waits
        start, end = (data.calls[c].to_numpy() for c in ("start_ns", "end_ns"))
        held = np.maximum(
            np.minimum(end[w.call], launched.max() if len(launched) else begin) - np.maximum(start[w.call], begin), 0
        )
        own = (int(launched.max()) - begin - int(held.sum())) if len(launched) else 0
        host = pl.DataFrame({"name": [None], "n": [len(launched)], "mean": [max(own, 0) / max(len(launched), 1)]})
        both = pl.concat([frame.select("name", pl.col("n").cast(pl.Int64), "mean"), host.cast({"name": pl.String})])
        frames.append(both.with_columns(pl.lit(data.rank, pl.Int64).alias("rank")))
    schema = {"name": pl.String, "n": pl.Int64, "mean": pl.Float64, "rank": pl.Int64}
    return pl.concat(frames) if frames else pl.DataFrame(schema=schema)


def even_rank(profile: Profile, rank: int | None, steps: dict[int, Step]) -> tuple[str, Change]:
    """The change, and what it is in words; of the rank that has most to gain, where none is named."""
    if len(steps) < 2:
        raise BadInput("--what-if even-rank: the profile has one rank, and no peers", "give the traces of all ranks")
    table = pl.concat(profile.map(paces, steps))
    stage = {
        r: setup.axes.get("pp", (0, 1))[0] if text and (setup := parse_setup(text)) else 0
        for r, text in profile.ranks.select("rank", "setup").iter_rows()
    }
    # Peers do the same work: those of the same pipeline stage.
    table = table.with_columns(pl.col("rank").replace_strict(stage, return_dtype=pl.Int64).alias("stage"))
    key = ["stage", "name"]
    middle = table.select("rank", *key, pl.col("mean").alias("other")).join(
        table.select(pl.col("rank").alias("me"), *key), on=key, nulls_equal=True
    )
    middle = middle.filter(pl.col("rank") != pl.col("me")).group_by("me", "name").agg(pl.col("other").median())
    table = table.join(middle, left_on=["rank", "name"], right_on=["me", "name"], how="inner", nulls_equal=True)
    table = table.with_columns((pl.col("n") * (pl.col("mean") - pl.col("other"))).clip(0).alias("over"))
    if rank is None:
        worst = table.group_by("rank").agg(pl.col("over").sum()).sort(["over", "rank"], descending=[True, False])
        if worst.height == 0:
            raise BadInput("--what-if even-rank: no rank has a peer with the same kernels", "name two ranks of a stage")
        rank = int(worst["rank"][0])
    mine = table.filter((pl.col("rank") == rank) & (pl.col("mean") > pl.col("other")))
    kernels = {name: other / mean for name, mean, other in mine.select("name", "mean", "other").iter_rows() if name}
    slow = mine.filter(pl.col("name").is_null())
    host = float(slow["mean"][0] / slow["other"][0]) if slow.height and slow["other"][0] else 1.0
    return f"rank {rank} is as fast as the median of its peers", Change(
        host_factor={rank: host}, kernel_factor={rank: kernels}
    )
