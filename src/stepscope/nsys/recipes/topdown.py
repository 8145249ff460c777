"""NVTX ranges as a tree, top down: where the host's time went, in total and in the range itself."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.errors import CannotAnswer
from stepscope.model.capturing import capture_with
from stepscope.model.note import Note
from stepscope.model.profile import Profile
from stepscope.nsys.recipes.picture import Tree
from stepscope.nsys.recipes.spec import Outcome, Recipe, per_source, with_pid
from stepscope.nsys.reports.spec import Args, Argument
from stepscope.nsys.reports.view import View

#: Between the texts of a path.
_IN = " › "
_FOLD = Argument("fold", bool, "write # for numbers, so that `step 1` and `step 2` are one", False)
_DEPTH = Argument("depth", int, "how deep the tree is shown", 6)
_MOST = 40


def _paths(view: View, args: Args) -> pl.DataFrame:
    """Per rank and path: instances, time, and time that no range inside took."""
    view.need("ranges")
    frames = []
    for rank, ranges in view.profile.by_rank("ranges"):
        stacked = (ranges["kind"] == "pushpop").to_numpy()
        if not stacked.any():
            continue
        names = view.names.str.replace_all(r"\d+", "#") if args.flag("fold") else view.names
        parent = ranges["parent"].cast(pl.Int64).fill_null(-1).to_numpy()
        length = (ranges["end_ns"] - ranges["start_ns"]).to_numpy()
        own = length.copy()
        np.subtract.at(own, parent[parent >= 0], length[parent >= 0])
        path = _climb(names.gather(ranges["name"]), parent, ranges["depth"].to_numpy())
        mine = pl.DataFrame({"path": path, "depth": ranges["depth"].cast(pl.Int64), "total_ns": length, "self_ns": own})
        inside = stacked & view.part.mask(ranges, per_thread=True).to_numpy()
        grouped = (
            mine.filter(pl.Series(inside))
            .group_by("path", "depth")
            .agg(pl.len().cast(pl.Int64).alias("n"), pl.col("total_ns", "self_ns").sum())
        )
        frames.append(grouped.with_columns(pl.lit(rank, pl.Int32).alias("rank")))
    if not frames:
        raise CannotAnswer("the profile has no nested ranges", capture_with())
    return pl.concat(frames)


def _climb(
    names: pl.Series,
    parent: np.ndarray[tuple[int], np.dtype[np.int64]],
    depth: np.ndarray[tuple[int], np.dtype[np.uint16]],
) -> pl.Series:
    """The path of every range: its parent's and its own text. Level by level, each distinct pair joined once."""
    texts: list[str] = []
    places: dict[tuple[int, int], int] = {}
    codes = names.cast(pl.Categorical).to_physical().to_numpy()
    text_of = dict(zip(codes.tolist(), names.to_list(), strict=True))
    path = np.full(len(codes), -1, dtype=np.int64)
    for level in range(int(depth.max(initial=0)) + 1):
        rows = np.flatnonzero(depth == level)
        above = np.where(parent[rows] >= 0, path[np.maximum(parent[rows], 0)], -1)
        pairs, place = np.unique(np.stack([above, codes[rows].astype(np.int64)]), axis=1, return_inverse=True)
        ids = np.empty(pairs.shape[1], dtype=np.int64)
        for i, (up, code) in enumerate(pairs.T.tolist()):
            if (up, code) not in places:
                places[up, code] = len(texts)
                texts.append(text_of[code] if up < 0 else texts[up] + _IN + text_of[code])
            ids[i] = places[up, code]
        path[rows] = ids[place.reshape(-1)]
    return pl.Series("path", texts, dtype=pl.String).gather(path)


def _topdown(profile: Profile, args: Args) -> Outcome:
    notes: list[Note] = []
    by_rank = pl.concat(per_source(profile, _paths, args, notes))
    every = by_rank.group_by("path", "depth").agg(
        pl.col("rank").n_unique().cast(pl.Int64).alias("ranks"),
        pl.col("n", "total_ns", "self_ns").sum(),
        pl.col("total_ns").min().alias("rank_min_ns"),
        pl.col("total_ns").max().alias("rank_max_ns"),
    )
    order = _top_down(every)
    whole = int(every.filter(pl.col("depth") == 0)["total_ns"].sum()) or 1
    every = every[order].with_columns(
        (pl.col("total_ns") * 100 / whole).round(1).alias("time_pct"),
        (pl.col("self_ns") * 100 / whole).round(1).alias("self_pct"),
    )
    shown = every.filter(pl.col("depth") < args.number("depth"))
    name = pl.lit("· ").repeat_by("depth").list.join("") + pl.col("path").str.split(_IN).list.last()
    columns = ["depth", "ranks", "n", "total_ns", "time_pct", "self_ns", "self_pct", "rank_min_ns", "rank_max_ns"]
    tree = shown.select(name.alias("range"), *columns)
    ranks = with_pid(profile, by_rank.select("rank", "path", "depth", "n", "total_ns", "self_ns")).sort("rank", "path")
    tables = {"topdown": tree, "paths": every.select("path", *columns), "rank_paths": ranks}
    return Outcome(tables, [_picture(shown, whole)], notes)


def _top_down(every: pl.DataFrame) -> list[int]:
    """Rows so that a range comes before what lies in it, longest first."""
    total = dict(every.select("path", "total_ns").iter_rows())
    keys = []
    for path in every["path"].to_list():
        parts = path.split(_IN)
        ups = [_IN.join(parts[: i + 1]) for i in range(len(parts))]
        keys.append(tuple((-total.get(up, 0), up) for up in ups))
    return sorted(range(len(keys)), key=keys.__getitem__)


def _picture(shown: pl.DataFrame, whole: int) -> Tree:
    """Bars as in a flame graph turned over: children lie in their parent, one after the other."""
    rows = []
    at: dict[str, float] = {}
    for row in shown.iter_rows(named=True):
        up, _, own = row["path"].rpartition(_IN)
        start = at.get(up, 0.0)
        share = row["total_ns"] / whole
        at[up], at[row["path"]] = start + share, start
        rows.append(
            (row["depth"], own, start, share, f"{row['n']} times, {row['time_pct']} %, itself {row['self_pct']} %")
        )
    rest = f", the first {_MOST} of {len(rows)} paths" if len(rows) > _MOST else ""
    return Tree(f"Host time by NVTX range, all ranks{rest}", rows[:_MOST])


RECIPES = (
    Recipe(
        "nvtx_cpu_topdown",
        "NVTX CPU Topdown",
        _topdown,
        "NVTX push/pop ranges as a tree: time on the host with and without what lies inside, over all ranks and"
        " threads. Ranges on several threads of a rank are added up.",
        (_FOLD, _DEPTH),
        ("path",),
    ),
)
