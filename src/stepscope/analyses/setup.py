"""Who is who: every rank's process, device, and place in the mesh.

The trainer's setup label says it best: it is written into the trace itself, so there is no side file to lose. Where
there is none, the rank comes from the profiler or is inferred, and `inferred` says so.
"""

from __future__ import annotations

from typing import Annotated

import polars as pl

from stepscope.model.labels import Setup, parse_setup
from stepscope.model.note import noted
from stepscope.model.profile import Profile
from stepscope.model.ranks import INFERRED, world_summary
from stepscope.model.result import OfRank, Result

#: Axes of the label's documented form come first and are always there; others follow as they occur.
AXES = ("pp", "dp", "cp", "ep")


class Row(OfRank):
    host: Annotated[str, "host name, or the file's name where the trace does not say"]
    device: Annotated[int | None, "CUDA ordinal of its device"]
    gpu: Annotated[str | None, "name of the device"]
    setup: Annotated[str | None, "the setup label as written"]
    pp_rank: Annotated[int | None, "coordinate on the pp axis"]
    pp_size: Annotated[int | None, "size on the pp axis"]
    dp_rank: Annotated[int | None, "coordinate on the dp axis"]
    dp_size: Annotated[int | None, "size on the dp axis"]
    cp_rank: Annotated[int | None, "coordinate on the cp axis"]
    cp_size: Annotated[int | None, "size on the cp axis"]
    ep_rank: Annotated[int | None, "coordinate on the ep axis"]
    ep_size: Annotated[int | None, "size on the ep axis"]
    mbs: Annotated[int | None, "micro-batch size"]
    seq: Annotated[int | None, "sequence length"]
    inferred: Annotated[bool, "true where nothing in the trace states the rank"]
    world_size: Annotated[int | None, "ranks of the job, where the trace says"]


def setup(profile: Profile) -> Result:
    labels = [parse_setup(text) if text else None for text in profile.ranks["setup"]]
    axes = dict.fromkeys(AXES) | dict.fromkeys(a for s in labels if s for a in s.axes)
    extra = {"mbs": None, "seq": None} | dict.fromkeys(k for s in labels if s for k in s.extra)
    columns = [
        pl.Series(f"{axis}_{part}", [_coordinate(s, axis, i) for s in labels], dtype=pl.Int64)
        for axis in axes
        for i, part in enumerate(("rank", "size"))
    ]
    columns += [pl.Series(k, [s.extra.get(k) if s else None for s in labels], dtype=pl.String) for k in extra]
    table = profile.ranks.select(
        "rank",
        "pid",
        "host",
        "device",
        "gpu",
        "setup",
        *columns,
        (pl.col("rank_from") == INFERRED).alias("inferred"),
        pl.col("world_size").cast(pl.Int64),
    ).with_columns(pl.col(k).cast(pl.Int64, strict=False) for k in ("mbs", "seq"))
    notes = []
    unlabelled = profile.ranks.filter(pl.col("setup").is_null())
    if unlabelled.height:
        notes.append(noted("no-setup-label", without=unlabelled.height, all=table.height))
    how = profile.ranks.group_by("rank_from").len().sort("rank_from")
    summary = {
        "rank_from": dict(how.iter_rows()),
        **world_summary(profile.ranks),
    }
    return Result(table, summary=summary, notes=notes)


def _coordinate(label: Setup | None, axis: str, part: int) -> int | None:
    return label.axes[axis][part] if label is not None and axis in label.axes else None
