"""What did each range cost: time on the host, and the GPU work that it launched?

One row per place in the tree of ranges (`--by path`) or per text (`--by name`), summed over the instances in the
window. A range's GPU work is what was launched in it and in the ranges inside it, wherever the GPU got to it: `gpu_ns`
is each instance's first start to last end (idle time and other work in between included), `kernel_ns`, `comm_ns` and
`copy_ns` are sums of durations. Columns with `self` leave out what deeper ranges hold. With `--by name`, instances
inside a range of the same text count in `n` and in the self columns only. `(no range)` is what no range launched.
A range that began before the window and launched into it shows with its whole length on the host. A path of more than
4,096 characters loses ranges from its middle.

Calls of libraries (cuBLAS, cuDNN, NCCL, MPI, UCX, OpenACC), traced or marked by themselves, are not ranges of the
program: `--by library` has them, and what they launched.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import numpy as np
import polars as pl
from msgspec.structs import replace

from stepscope.analyses.nvtx.flame import write_flame
from stepscope.analyses.nvtx.libraries import library_figures
from stepscope.derive.accounting.forest import Forest, Gpu, forest, launched
from stepscope.derive.accounting.places import NO_RANGE, Places
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.rank.graphs import graph_notes
from stepscope.derive.rank.libraries import library_calls
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import Window
from stepscope.errors import BadInput, CannotAnswer
from stepscope.intervals.arrays import I64, NONE, Mask
from stepscope.model.capturing import capture_by
from stepscope.model.option import Effect
from stepscope.model.profile import Profile
from stepscope.model.result import OfRank, Result, names

#: What torch.autograd.profiler.emit_nvtx adds to the name of every op.
_TORCH_IDS = r", (seq = \d+|op_id = \d+|sizes = .*|input_op_ids = .*).*$"


class _Whole(TypedDict):
    n: Annotated[int, "instances"]
    host_ns: Annotated[int, "their length on the host"]
    mean_ns: Annotated[int | None, "mean length on the host"]
    max_ns: Annotated[int | None, "longest on the host"]
    gpu_ns: Annotated[int, "first start to last end of the ops launched in each instance, summed"]
    kernel_ns: Annotated[int, "sum of its compute kernels' durations"]
    comm_ns: Annotated[int, "sum of its communication ops' durations"]
    copy_ns: Annotated[int, "sum of its copies' and memsets' durations"]
    ops: Annotated[int, "GPU ops launched in it"]


class _Figures(_Whole):
    self_host_ns: Annotated[int, "host time in which no deeper range was open"]
    self_gpu_ns: Annotated[int, "first start to last end of the ops that it launched itself, summed"]
    self_kernel_ns: Annotated[int, "compute kernels that it launched itself"]
    self_comm_ns: Annotated[int, "communication that it launched itself"]
    self_copy_ns: Annotated[int, "copies and memsets that it launched itself"]
    self_ops: Annotated[int, "GPU ops that it launched itself"]


class _Key(OfRank):
    depth: Annotated[int, "how many ranges it lies in"]
    path: Annotated[str, "texts of the ranges from the top, joined by ` > `"]
    range: Annotated[str, "its own text"]


class Row(_Key, _Figures): ...


class _Name(OfRank):
    range: Annotated[str, "text of the range"]


class ByName(_Name, _Figures): ...


class _Library(OfRank):
    library: Annotated[str, "cuBLAS, cuDNN, NCCL, MPI, UCX, OpenACC, …"]
    range: Annotated[str, "name of the call"]


class ByLibrary(_Library, _Whole): ...


VARIANTS = {"by=name": ByName, "by=library": ByLibrary}
_SUMS = [name for name in names(_Figures) if name not in ("n", "mean_ns", "max_ns")]


def nvtx(
    profile: Profile,
    window: WindowSpec,
    *,
    by: Annotated[Literal["path", "name", "library"], "one row per place in the tree, or per text"] = "path",
    depth: Annotated[int | None, "only ranges that lie in fewer than N others"] = None,
    fold: Annotated[bool, "texts that differ only in numbers are one: `step 3` and `step 4` are `step #`"] = False,
    flame: Annotated[
        Path | None, "also write collapsed stacks for flame graph tools to this file", Effect.WRITES
    ] = None,
    weight: Annotated[Literal["host", "gpu"], "what the flame graph weighs: host time, or GPU op time"] = "host",
) -> Result:
    if by == "library":
        return _libraries(profile, window, flame)
    if not profile.has("ranges") or profile.ranges.height == 0:
        raise CannotAnswer(
            "the profile has no NVTX ranges or annotations",
            capture_by("--ranges modules"),
        )
    chosen = windows(profile, window)
    frames: list[pl.DataFrame] = []
    places: dict[int, Places] = {}
    for data in ranks_of(profile):
        tree, texts = _texts(profile, forest(data), fold)
        place, places[data.rank] = tree.places(texts)
        frames += [span.named(_instances(data, tree, texts, place, span)) for span in chosen.of(data.rank)]
    table = pl.concat(frames)
    if by == "path" or flame is not None:
        paths = _by_path(table, places)
    if flame is not None:
        write_flame(profile, paths, flame, weight)
    shown = _by_name(table) if by == "name" else paths
    if by == "path" and depth is not None:
        shown = shown.filter(pl.col("depth") < depth)
    row_type = Row if by == "path" else ByName
    summary: dict[str, Any] = {"ranges": int((table["n"] > 0).sum())}
    if flame is not None:
        summary["flame"] = str(flame)
    notes = [*chosen.notes, *graph_notes(profile)]
    return Result(chosen.table(row_type, shown), chosen.rows(), summary, notes, ranked_by="host_ns")


def _libraries(profile: Profile, window: WindowSpec, flame: Path | None) -> Result:
    if flame is not None:
        raise BadInput("--flame: calls of libraries do not form a tree of the program", "leave out --by library")
    if not any(library_calls(data).frame.height for data in ranks_of(profile)):
        raise CannotAnswer(
            "the profile has no calls of libraries", capture_by("--nsys-args=--trace=cuda,nvtx,cublas,cudnn,mpi,ucx")
        )
    chosen = windows(profile, window)
    frames = [span.of_rank(library_figures(data, span)) for data in ranks_of(profile) for span in chosen.of(data.rank)]
    table = chosen.table(ByLibrary, pl.concat(frames) if frames else [])
    return Result(table, chosen.rows(), {}, [*chosen.notes, *graph_notes(profile)], ranked_by="host_ns")


def _texts(profile: Profile, tree: Forest, fold: bool) -> tuple[Forest, pl.Series]:
    """Texts of the ranges, and the forest with its names as rows of them. torch's running ids are always left out."""
    ids, at = np.unique(tree.name, return_inverse=True)
    text = profile.names.gather(ids).str.replace(_TORCH_IDS, "")
    if fold:
        text = text.str.replace_all(r"\d+", "#")
    texts = text.unique(maintain_order=True)
    row = dict(zip(texts.to_list(), range(len(texts)), strict=True))
    of_id = np.fromiter((row[t] for t in text.to_list()), dtype=np.int64, count=len(text))
    return replace(tree, name=of_id[at.reshape(-1)]), texts


def _instances(data: RankData, tree: Forest, names: pl.Series, place: I64, span: Window) -> pl.DataFrame:
    """One row per range of the window, and one for what no range launched."""
    ops = span.ops
    start, end = data.start[ops], data.end[ops]
    if span.clipped and span.gpu_start_ns is not None and span.gpu_end_ns is not None:
        start, end = np.maximum(start, span.gpu_start_ns), np.minimum(end, span.gpu_end_ns)
    own, outside = launched(data, tree, ops, start, end)
    full = tree.climb(own)
    if span.cpu_start_ns is None or span.cpu_end_ns is None:  # a window in GPU time: the ranges that launched into it
        mine = np.flatnonzero(full.ops > 0)
    else:
        mine = np.flatnonzero((tree.start >= span.cpu_start_ns) & (tree.start < span.cpu_end_ns) | (full.ops > 0))
    frame = pl.DataFrame(
        {
            "depth": tree.depth[mine],
            "place": place[mine],
            "range": names.gather(tree.name[mine]),
            "outermost": tree.outermost()[mine],
            "n": np.ones(len(mine), np.int64),
            "host_ns": (tree.end - tree.start)[mine],
            "self_host_ns": tree.self_ns[mine],
            **_gpu(full, mine, ""),
            **_gpu(own, mine, "self_"),
        }
    )
    rest = _outside(data, ops, start, end, outside)
    return pl.concat([frame, rest.select(frame.columns)] if rest.height else [frame]).select(
        pl.lit(data.rank, pl.Int64).alias("rank"), pl.lit(data.pid, pl.Int64).alias("pid"), pl.all()
    )


def _gpu(figures: Gpu, mine: I64, prefix: str) -> dict[str, I64]:
    return {
        f"{prefix}gpu_ns": figures.span_ns[mine],
        f"{prefix}kernel_ns": figures.compute_ns[mine],
        f"{prefix}comm_ns": figures.comm_ns[mine],
        f"{prefix}copy_ns": figures.copy_ns[mine],
        f"{prefix}ops": figures.ops[mine],
    }


def _outside(data: RankData, ops: I64, start: I64, end: I64, outside: Mask) -> pl.DataFrame:
    if not outside.any():
        return pl.DataFrame()
    length, role = (end - start)[outside], data.role[ops[outside]]
    figures = {
        "gpu_ns": int(end[outside].max() - start[outside].min()),
        **{f"{k}_ns": int(length[role == r].sum()) for r, k in enumerate(("kernel", "comm", "copy"))},
        "ops": int(outside.sum()),
    }
    row = {"depth": 0, "place": NONE, "range": NO_RANGE, "outermost": True, "n": 0, "host_ns": 0, "self_host_ns": 0}
    return pl.DataFrame([row | figures | {f"self_{k}": v for k, v in figures.items()}])


def _by_path(table: pl.DataFrame, places: dict[int, Places]) -> pl.DataFrame:
    """A row per place, depth first, the longest child first; what no range launched comes last."""
    summed = _summed(table, ["rank", "pid", "depth", "place", "range"])
    if summed.height == 0:
        return summed.with_columns(path=pl.lit(None, pl.String))
    return pl.concat([_in_order(mine, places[mine["rank"][0]]) for mine in summed.partition_by("rank", "index")])


def _in_order(table: pl.DataFrame, places: Places) -> pl.DataFrame:
    """Rows of one window, with their paths."""
    place = table["place"].to_numpy()
    weight = np.zeros(len(places.parent) + 1, dtype=np.int64)  # places out of the window weigh nothing
    weight[place] = table["host_ns"].to_numpy()
    order = np.append(places.order(weight[:-1]), len(places.parent))
    paths = pl.Series("path", [*places.paths(), NO_RANGE], dtype=pl.String)
    return table.with_columns(paths.gather(place % (len(places.parent) + 1)))[np.argsort(order[place], kind="stable")]


def _by_name(table: pl.DataFrame) -> pl.DataFrame:
    inner = [c for c in _SUMS if not c.startswith("self_")]
    flat = table.with_columns(pl.when("outermost").then(pl.col(c)).otherwise(0).alias(c) for c in inner)
    summed = _summed(flat, ["rank", "pid", "range"], longest=table)
    # A range within another of its name: their own work overlaps, and is not longer than both together.
    summed = summed.with_columns(pl.min_horizontal("self_gpu_ns", "gpu_ns").alias("self_gpu_ns"))
    last = (pl.col("range") == NO_RANGE).alias("last")
    order = {"rank": False, "index": False, "last": False, "host_ns": True, "range": False}
    return summed.with_columns(last).sort(list(order), descending=list(order.values()))


def _summed(table: pl.DataFrame, keys: list[str], longest: pl.DataFrame | None = None) -> pl.DataFrame:
    n = pl.col("n").sum()
    length = pl.col("length")
    lengths = (longest if longest is not None else table)["host_ns"].alias("length")
    return (
        table.with_columns(lengths)
        .group_by(*keys, "window", "index", "label", maintain_order=True)
        .agg(
            n.alias("n"),
            *(pl.col(c).sum() for c in _SUMS),
            pl.when(n > 0).then((length.sum() / n).round(0)).cast(pl.Int64).alias("mean_ns"),
            pl.when(n > 0).then(length.max()).alias("max_ns"),
        )
        .sort("rank", "index", maintain_order=True)
    )
