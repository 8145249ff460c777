"""Recipes on sampled metrics: of the GPU, of NVLink, of the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from stepscope.errors import BadInput, CannotAnswer
from stepscope.intervals.arrays import I64
from stepscope.model.capturing import capture_with
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.nsys.recipes.clocks import offsets
from stepscope.nsys.recipes.maps import BINS, edges_of, unbounded
from stepscope.nsys.recipes.picture import Bars, HeatMap
from stepscope.nsys.recipes.spec import Outcome, Recipe, per_source, with_pid
from stepscope.nsys.recipes.stats import counted, extremes, statistics
from stepscope.nsys.reports.spec import Args, Argument, Rows
from stepscope.nsys.reports.view import View


@dataclass(frozen=True)
class _Kind:
    """Metrics of one sort: a pattern of their names, and how to capture them."""

    pattern: str
    what: str
    how: str
    device: str = "GPU"
    unit: str = "%"


_GPU = _Kind(r"(?i)^(SMs? Active|SM Issue|Tensor Active)", "GPU metrics", capture_with("gpu-metrics"))
_EVERY = _Kind(r"^([^N]|N[^I]|NI[^C])", "GPU metrics", _GPU.how)
_NVLINK = _Kind(r"(?i)nvlink|nvl\b", "NVLink metrics", _GPU.how)
_NETWORK = _Kind(
    r"^NIC ",
    "network metrics",
    capture_with("network"),
    "NIC",
    "",
)


def _samples(view: View, args: Args, kind: _Kind) -> pl.DataFrame:
    """Samples of the metrics asked for, by name."""
    if not view.profile.has("counters"):
        raise CannotAnswer(f"the profile has no {kind.what}", kind.how)
    counters = view.profile.counters
    pattern = args.get("metric") or kind.pattern
    try:
        wanted = view.names.str.contains(str(pattern))
    except pl.exceptions.ComputeError:
        raise BadInput(f"--metric {pattern!r}: not a regular expression", "Rust syntax, no look-around") from None
    low, high = args.get("start"), args.get("end")
    counters = counters.filter(wanted.gather(counters["name"])) if counters.height else counters
    counters = counters.filter(pl.col("start_ns") >= low) if low is not None else counters
    counters = counters.filter(pl.col("start_ns") < high) if high is not None else counters
    if counters.height == 0:
        raise CannotAnswer(f"the profile has no {kind.what}", kind.how)
    return Rows(counters.select("rank", "device", "name", "start_ns", "value"), {"name": view.names}).decoded()


def _extent(view: View, args: Args, kind: _Kind) -> pl.DataFrame:
    samples = _samples(view, args, kind)
    return samples.group_by("rank").agg(pl.col("start_ns").min(), (pl.col("start_ns").max() + 1).alias("end_ns"))


def _binned(view: View, args: Args, kind: _Kind, edges: I64, clock: Mapping[int, int]) -> pl.DataFrame:
    """Mean of the samples in each bin; null where there is none: not sampled is not zero."""
    samples = _samples(view, args, kind)
    at = (samples["start_ns"] + samples["rank"].replace_strict(clock, return_dtype=pl.Int64)).to_numpy()
    place = np.searchsorted(edges, at, side="right") - 1
    samples = samples.with_columns(pl.Series("bin", place)).filter(
        (pl.col("bin") >= 0) & (pl.col("bin") < len(edges) - 1)
    )
    return samples.group_by("rank", "device", "name", "bin").agg(
        pl.col("value").mean().round(1), pl.len().cast(pl.Int64).alias("samples")
    )


def _map(profile: Profile, args: Args, kind: _Kind) -> Outcome:
    notes: list[Note] = []
    clock = offsets(profile, notes)
    edges = edges_of(profile, partial(_extent, kind=kind), args, clock, notes)
    frames = per_source(profile, partial(_binned, kind=kind, edges=edges, clock=clock), unbounded(args), [])
    samples = pl.concat(frames)
    keys = ["rank", "device", "name"]
    lines = samples.select(keys).unique()
    bins = pl.DataFrame({"bin": np.arange(len(edges) - 1), "start_ns": edges[:-1], "end_ns": edges[1:]})
    table = (
        lines.join(bins, how="cross").join(samples, on=[*keys, "bin"], how="left").sort("name", "rank", "device", "bin")
    )
    table = with_pid(profile, table.with_columns(pl.col("samples").fill_null(0)))
    whole = table.group_by("rank", "pid", "device", "name", maintain_order=True).agg(
        pl.col("value").mean().round(1).alias("mean"),
        pl.col("value").min().alias("min"),
        pl.col("value").max().alias("max"),
        pl.col("samples").sum(),
    )
    pictures = []
    for (name,), mine in table.group_by("name", maintain_order=True):
        rows = mine.group_by("rank", "device", maintain_order=True).agg("value")
        labels = [f"rank {rank} · {kind.device} {device}" for rank, device in rows.select("rank", "device").iter_rows()]
        pictures.append(HeatMap(str(name), labels, rows["value"].to_list(), int(edges[0]), int(edges[-1]), kind.unit))
    notes.append(noted("samples-of-device"))
    return Outcome({"ranks": whole, "analysis": table}, pictures, notes)


def _values(view: View, args: Args, kind: _Kind) -> pl.DataFrame:
    return counted(_samples(view, args, kind).select("rank", "device", "name", "value"), "value")


def _sum(profile: Profile, args: Args, kind: _Kind) -> Outcome:
    notes: list[Note] = []
    counts = pl.concat(per_source(profile, partial(_values, kind=kind), args, notes))
    ranks = statistics(counts, ["rank", "device", "name"], "linear").drop("total")
    every = statistics(counts, ["name"], "linear").drop("total")
    every = every.join(extremes(ranks, ["name"]), on="name", how="left", maintain_order="left")
    picture = Bars("Mean over all samples of all ranks", every["name"].to_list(), every["avg"].to_list(), "value")
    return Outcome({"all_stats": every, "rank_stats": with_pid(profile, ranks)}, [picture], notes)


_METRIC = Argument("metric", str, "only metrics whose name matches this regular expression")


def _sums(name: str, title: str, kind: _Kind, doc: str) -> Recipe:
    return Recipe(name, title, partial(_sum, kind=kind), doc, (_METRIC,), ("name",))


RECIPES = (
    Recipe(
        "gpu_metric_util_map",
        "GPU Metric Utilization Heatmap",
        partial(_map, kind=_GPU),
        "Sampled metrics in bins of time: SMs active, SM issue, tensor active, or those that --metric names.",
        (BINS, _METRIC),
        ("rank", "device", "name"),
    ),
    Recipe(
        "nic_metric_map",
        "NIC Metric Heatmap",
        partial(_map, kind=_NETWORK),
        "Sampled metrics of network cards in bins of time: the mean of what a sample counted.",
        (BINS, _METRIC),
        ("rank", "device", "name"),
    ),
    _sums("gpu_metric_util_sum", "GPU Metric Utilization Summary", _EVERY, "Statistics of every sampled GPU metric."),
    _sums("nvlink_sum", "NVLink Summary", _NVLINK, "Statistics of the sampled metrics of NVLink."),
    _sums("network_sum", "Network Summary", _NETWORK, "Statistics of the sampled metrics of network cards."),
)
