"""What is in this profile: ranks, devices, events, and what is missing.

The first thing to run on an unknown trace: which tool wrote it, what it holds per rank, how long it is, and what the
reader had to infer or drop.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypedDict

import polars as pl

from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.rank.recorded import contradictions
from stepscope.derive.rank.streams import overlapping
from stepscope.derive.windows.cut_off import notes_on_cut
from stepscope.model.kernel_names import shorten
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.ranks import world_summary
from stepscope.model.result import Result, rows
from stepscope.model.schema import TABLES
from stepscope.model.units import about


class Row(TypedDict):
    rank: Annotated[int, "rank of the process"]
    pid: Annotated[int | None, "process id on its host"]
    host: Annotated[str, "host name, or the file's name where the trace does not say"]
    gpu: Annotated[str | None, "name of its device"]
    kernels: Annotated[int, "compute and communication kernels, and graphs recorded as one"]
    comm: Annotated[int, "communication ops among them, peer copies included"]
    copies: Annotated[int, "copies and memsets"]
    calls: Annotated[int, "CUDA API calls"]
    ranges: Annotated[int, "NVTX ranges and torch annotations"]
    streams: Annotated[int, "streams with GPU work"]
    gpu_span_ns: Annotated[int | None, "first start to last end of GPU work"]
    linked_pct: Annotated[float | None, "share of GPU ops whose launching call is in the trace"]
    file: Annotated[str, "file it came from"]


#: It says what a file is, with or without a timeline.
TIMELESS = True


def info(profile: Profile) -> Result:
    kernel = pl.col("kind").is_in(["kernel", "graph"])
    ops = profile.ops.group_by("rank").agg(
        kernel.sum().alias("kernels"),
        (pl.col("role") == "comm").sum().alias("comm"),
        (pl.col("role") == "copy").sum().alias("copies"),
        pl.struct("device", "stream").n_unique().alias("streams"),
        (pl.col("end_ns").max() - pl.col("start_ns").min()).alias("gpu_span_ns"),
        (100.0 * pl.col("launch").is_not_null().mean()).alias("linked_pct"),
    )
    calls, ranges = (profile.table(t).group_by("rank").agg(pl.len().alias(t)) for t in ("calls", "ranges"))
    files = pl.DataFrame({"source": range(len(profile.sources)), "file": [s.file for s in profile.sources]}).cast(
        {"source": pl.Int32}
    )
    table = profile.ranks.join(files, on="source", how="left")
    for part in (ops, calls, ranges):
        table = table.join(part, on="rank", how="left")
    counts = ["kernels", "comm", "copies", "calls", "ranges", "streams"]
    table = table.with_columns(pl.col(counts).fill_null(0)).sort("rank")
    missing = [t for t in TABLES if not profile.has(t)]
    summary = {
        "ranks": table.height,
        **world_summary(profile.ranks),
        "hosts": table["host"].n_unique(),
        "tables": [t for t in TABLES if t not in missing],
        "missing": missing,
        "capture_ns": max((s.capture_ns for s in profile.sources if s.capture_ns is not None), default=None),
        **({"dependencies": profile.table("dependencies").height} if profile.has("dependencies") else {}),
        **({"measured": _measured(profile)} if profile.has("measured") else {}),
    }
    notes = [
        n for data in ranks_of(profile) for n in (*contradictions(data), *notes_on_cut(data), *_side_by_side(data))
    ]
    return Result(rows(Row, table), summary=summary, notes=notes)


def _measured(profile: Profile) -> list[dict[str, str | int]]:
    """By report of Nsight Compute: how many kernels it measured, and how much of each."""
    kernels = profile.table("measured").group_by("source", maintain_order=True).len("kernels")
    metrics = profile.table("metrics").group_by("source").agg(pl.col("name").n_unique().alias("metrics"))
    counts = kernels.join(metrics, on="source", how="left", maintain_order="left")
    return [
        {"file": Path(profile.source_info(source).file).name, "kernels": count, "metrics": distinct or 0}
        for source, count, distinct in counts.iter_rows()
    ]


def _side_by_side(data: RankData) -> list[Note]:
    """Ops of one stream that overlap, as they may; those that may not were left out when they were read."""
    ops, early = overlapping(data)
    if not len(ops):
        return []
    most = ops[int(early.argmax())]
    name = shorten(data.profile.names[int(data.name[most])])
    begin = "op begins" if len(ops) == 1 else "ops begin"
    length = about(data.end[most] - data.start[most])
    return [
        noted(
            "ops-overlap",
            rank=data.rank,
            number=len(ops),
            begin=begin,
            name=name,
            stream=data.stream[most],
            ahead=about(early.max()),
            length=length,
            start=data.start[most],
            ranks=[data.rank],
        )
    ]
