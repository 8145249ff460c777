"""Recipes that cut time into bins: how much of each a rank's kernels used, or what a sampled metric was."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import polars as pl

from stepscope.errors import BadInput, CannotAnswer
from stepscope.intervals import union
from stepscope.intervals.arrays import I64
from stepscope.model.capturing import capture_with
from stepscope.model.note import Note
from stepscope.model.profile import Profile
from stepscope.nsys.recipes.clocks import offsets
from stepscope.nsys.recipes.picture import HeatMap
from stepscope.nsys.recipes.spec import Mapping_, Outcome, Recipe, per_source, with_pid
from stepscope.nsys.reports.spec import Args, Argument
from stepscope.nsys.reports.statistics import round1
from stepscope.nsys.reports.view import View

BINS = Argument("bins", int, "how many bins to cut the time into", 30)
_CUMULATIVE = Argument("cumulative", bool, "add up operations that run side by side, which can pass 100 %", False)
#: What a map shows, by the name of the column: which roles of kernels.
_KERNEL = {"kernel_pct": ("compute", "comm")}
_NCCL = {"all_pct": ("compute", "comm"), "nccl_pct": ("comm",), "compute_pct": ("compute",)}


def edges_of(profile: Profile, extent: Mapping_, args: Args, clock: Mapping[int, int], notes: list[Note]) -> I64:
    """Edges of the bins on the common clock: from the first start to the last end on any rank, or as asked for."""
    bins = args.number("bins")
    if not 1 <= bins <= 10_000:
        raise BadInput(f"--bins {bins}", "give a number from 1 to 10000")
    start, end = args.get("start"), args.get("end")
    if start is None or end is None:
        extents = pl.concat(per_source(profile, extent, unbounded(args), notes))
        if extents.height == 0:
            raise CannotAnswer("nothing of the kind ran in this part of the capture", "widen --start and --end")
        shift = extents["rank"].replace_strict(clock, return_dtype=pl.Int64)
        first, last = (extents["start_ns"] + shift).min(), (extents["end_ns"] + shift).max()
        assert isinstance(first, int) and isinstance(last, int)
        start, end = first if start is None else start, last if end is None else end
    assert isinstance(start, int) and isinstance(end, int)
    return start + (np.arange(bins + 1, dtype=np.int64) * (max(end, start + 1) - start)) // bins


def unbounded(args: Args) -> Args:
    """Bins are cut on the common clock: no rank may be cut by its own before."""
    return Args({**args, "start": None, "end": None})


def _extent(view: View, args: Args) -> pl.DataFrame:
    """First start and last end of each rank's kernels."""
    view.need("ops")
    ops = view.ops("kernel", "graph")
    return ops.group_by("rank").agg(pl.col("start_ns").min(), pl.col("end_ns").max())


def _used(
    view: View, args: Args, edges: I64, clock: Mapping[int, int], shown: Mapping[str, tuple[str, ...]]
) -> pl.DataFrame:
    """Per rank, device and bin: the share of the bin in which kernels of each kind ran."""
    view.need("ops")
    length = np.diff(edges)
    frames = []
    for (rank, device), ops in view.ops("kernel", "graph").group_by("rank", "device", maintain_order=True):
        columns = {}
        for column, roles in shown.items():
            mine = ops.filter(pl.col("role").is_in(roles))
            start, end = (mine[c].to_numpy() + clock[int(str(rank))] for c in ("start_ns", "end_ns"))
            before = _added(start, end, edges) if args.flag("cumulative") else union(start, end).measure_before(edges)
            columns[column] = 100 * np.diff(before) / np.maximum(length, 1)
        frames.append(_bins(rank, device, edges).with_columns(pl.Series(k, v) for k, v in columns.items()))
    return pl.concat(frames) if frames else pl.DataFrame()


def _bins(rank: object, device: object, edges: I64) -> pl.DataFrame:
    return pl.DataFrame({"bin": np.arange(len(edges) - 1), "start_ns": edges[:-1], "end_ns": edges[1:]}).select(
        pl.lit(rank, pl.Int32).alias("rank"), pl.lit(device, pl.Int32).alias("device"), pl.all()
    )


def _added(start: I64, end: I64, at: I64) -> I64:
    """Time of all operations together before each moment, those side by side added."""
    total = np.zeros(len(at), dtype=np.int64)
    for times, sign in ((np.sort(start), 1), (np.sort(end), -1)):
        if len(times):
            sums = np.r_[0, np.cumsum(times - times[0])]
            k = np.searchsorted(times, at)
            total += sign * (k * (at - times[0]) - sums[k])
    return total


def _map(profile: Profile, args: Args, shown: Mapping[str, tuple[str, ...]]) -> Outcome:
    notes: list[Note] = []
    clock = offsets(profile, notes)
    edges = edges_of(profile, _extent, args, clock, notes)
    mapping = partial(_used, edges=edges, clock=clock, shown=shown)
    frames = [f for f in per_source(profile, mapping, unbounded(args), []) if f.height]
    if not frames:
        raise CannotAnswer("the profile has no kernels", capture_with())
    return _outcome(profile, pl.concat(frames), list(shown), edges, notes)


def _outcome(profile: Profile, table: pl.DataFrame, shown: list[str], edges: I64, notes: list[Note]) -> Outcome:
    """A row per rank with the mean over the bins, the bins, and a heat map per column."""
    table = with_pid(profile, table.with_columns(round1(pl.col(c)) for c in shown)).sort("rank", "device", "bin")
    whole = table.group_by("rank", "pid", "device", maintain_order=True).agg(
        *(expr for c in shown for expr in _over_bins(c)), pl.len().cast(pl.Int64).alias("bins")
    )
    pictures = []
    for column in shown:
        lines = table.group_by("rank", "device", maintain_order=True).agg(column)
        labels = [f"rank {rank} · GPU {device}" for rank, device in lines.select("rank", "device").iter_rows()]
        title = f"{_TITLES.get(column, column)} in {len(edges) - 1} bins"
        pictures.append(HeatMap(title, labels, lines[column].to_list(), int(edges[0]), int(edges[-1])))
    return Outcome({"ranks": whole, "analysis": table}, pictures, notes)


_TITLES = {
    "kernel_pct": "Time in kernels",
    "all_pct": "Time in kernels",
    "nccl_pct": "Time in communication kernels",
    "compute_pct": "Time in compute kernels",
}


def _over_bins(column: str) -> list[pl.Expr]:
    name = column.removesuffix("_pct")
    value = pl.col(column)
    return [
        value.mean().round(1).alias(f"{name}_pct"),
        value.min().alias(f"{name}_min_pct"),
        value.max().alias(f"{name}_max_pct"),
    ]


_UNION = (
    "--start and --end are on the clock that all ranks share. A bin is used while any kernel runs; --cumulative adds"
    " those side by side, as nsys does with that option."
)

RECIPES = (
    Recipe(
        "cuda_gpu_time_util_map",
        "CUDA GPU Time Utilization Heatmap",
        partial(_map, shown=_KERNEL),
        f"How much of each bin of time a rank's kernels used a device. {_UNION}",
        (BINS, _CUMULATIVE),
        ("rank", "device"),
        {"kernel_pct": "Kernel", "start_ns": "Duration", "pid": "PID", "device": "Device ID", "rank": "Rank"},
    ),
    Recipe(
        "nccl_gpu_time_util_map",
        "NCCL GPU Time Utilization Heatmap",
        partial(_map, shown=_NCCL),
        f"How much of each bin went to communication, to compute, and to either. {_UNION}",
        (BINS, _CUMULATIVE),
        ("rank", "device"),
        {
            "all_pct": "All",
            "nccl_pct": "NCCL",
            "compute_pct": "Compute",
            "start_ns": "Duration",
            "pid": "PID",
            "device": "Device ID",
            "rank": "Rank",
        },
    ),
)
