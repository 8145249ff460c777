"""Recipes that sum up: time or bytes by name, per rank and over all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import polars as pl

from stepscope.errors import CannotAnswer
from stepscope.model.capturing import capture_with
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.nsys.recipes.nccl import call_bytes, kernel_bytes, nccl_calls, nccl_projections
from stepscope.nsys.recipes.picture import Bars
from stepscope.nsys.recipes.spec import Mapping_, Outcome, Recipe, per_source, with_pid
from stepscope.nsys.recipes.stats import Quartiles, counted, extremes, statistics, with_share
from stepscope.nsys.reports.kernels import copies, kernels
from stepscope.nsys.reports.projection import project
from stepscope.nsys.reports.spec import BASE, MANGLED, Args, Rows
from stepscope.nsys.reports.view import View

#: Rows to be summed up: `rank`, the keys, `value`.
Source = Callable[[View, Args], Rows]

_MOST_BARS = 15
_DURATION = (pl.col("end_ns") - pl.col("start_ns")).alias("value")
#: nsys's class of plain calls; the others are its own helper records.
_OSRT_CALL = 27


def _calls(view: View, args: Args) -> Rows:
    view.need("calls")
    calls = view.api_calls().select("rank", pl.col("api").alias("name"), _DURATION)
    return Rows(calls, {"name": view.api_names})


def _kernels(view: View, args: Args) -> Rows:
    named = kernels(view, args)
    frame = named.frame.select("rank", pl.col("kernel").alias("name"), pl.col("duration").alias("value"))
    return Rows(frame, {"name": named.texts["kernel"]})


def _copies(view: View, args: Args, value: str = "duration") -> Rows:
    moved = copies(view, detail=True).select("rank", pl.col("operation").alias("name"), pl.col(value).alias("value"))
    return Rows(moved.drop_nulls("value"))


def _ranges(view: View, args: Args) -> Rows:
    view.need("ranges")
    return Rows(view.ranges.select("rank", "name", _DURATION), {"name": view.names})


def _projected(view: View, args: Args) -> Rows:
    view.need("ops", "calls", "ranges")
    made = project(view)
    ranges = view.attribution.ranges.select("rank", "name")
    frame = ranges.with_columns(pl.Series("value", made.end - made.start)).filter(pl.Series(made.n > 0))
    return Rows(frame, {"name": view.names})


def _records(view: View, args: Args, kinds: Sequence[str], event_class: int | None = None) -> Rows:
    records = view.records(*kinds)
    if event_class is not None:
        records = records.filter(pl.col("event_class") == event_class)
    return Rows(records.select("rank", "name", _DURATION), {"name": view.names})


@dataclass(frozen=True)
class Sum:
    """How a recipe sums up: what, in which unit, with which quartiles; `more` adds bytes per name."""

    source: Source
    quartiles: Quartiles
    unit: str = "ns"
    share: bool = True
    more: Mapping_ | None = None

    def __call__(self, profile: Profile, args: Args) -> Outcome:
        notes: list[Note] = []
        counts = pl.concat(per_source(profile, partial(_counts, source=self.source), args, notes))
        if counts.height == 0:
            raise CannotAnswer(
                "the profile has none of what this recipe sums up", "widen --start and --end, or capture more"
            )
        ranks = statistics(counts, ["rank", "name"], self.quartiles)
        every = statistics(counts, ["name"], self.quartiles)
        every = every.join(extremes(ranks, ["name"]), on="name", how="left", maintain_order="left")
        if self.share:
            ranks, every = with_share(ranks, ["rank"]), with_share(every)
        extra: list[str] = []
        if self.more is not None:
            moved = pl.concat(per_source(profile, self.more, args, notes))
            if moved["bytes"].null_count() < moved.height:
                ranks, every = _moved(ranks, moved, ["rank", "name"]), _moved(every, moved, ["name"])
                extra = ["bytes", "communicators"]
            else:
                notes.append(noted("no-payloads/bytes", capture_with=capture_with()))
        first = ["time_pct"] if self.share else []
        ranks = ranks.sort("rank", "total", "name", descending=[False, True, False])
        every = every.sort("total", "name", descending=[True, False])
        figures = [*first, "total", "n", "avg", "q1", "med", "q3", "min", "max", "std", *extra]
        all_stats = self._named(every.select("name", *figures, "min_ranks", "max_ranks"))
        rank_stats = self._named(with_pid(profile, ranks.select("rank", "name", *figures)))
        return Outcome({"all_stats": all_stats, "rank_stats": rank_stats}, [self._bars(all_stats)], notes)

    def _named(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.rename({c: f"{c}_{self.unit}" for c in _FIGURES if c in frame.columns})

    def _bars(self, frame: pl.DataFrame) -> Bars:
        top = frame.head(_MOST_BARS)
        total = f"total_{self.unit}"
        unit = f"_{self.unit}"
        rest = f", the first {_MOST_BARS} of {frame.height}" if frame.height > _MOST_BARS else ""
        what = "Bytes" if self.unit == "bytes" else "Time"
        spread = [f"avg{unit}", f"q1{unit}", f"med{unit}", f"q3{unit}", f"min{unit}", f"max{unit}"]
        return Bars(
            f"{what} over all ranks{rest}",
            top["name"].fill_null("(no name)").to_list(),
            top[total].to_list(),
            total,
            [", ".join(f"{c} {v}" for c, v in row.items()) for row in top.select("n", *spread).iter_rows(named=True)],
        )


_FIGURES = ("total", "avg", "q1", "med", "q3", "min", "max", "std")


def _counts(view: View, args: Args, source: Source) -> pl.DataFrame:
    """How often each duration (or size) occurred: counted by code, then named, then counted by name."""
    rows = source(view, args)
    named = rows.decoded(counted(rows.frame, "value"))
    return named.group_by("rank", "name", "value").agg(pl.col("n").sum()).select("rank", "name", "value", "n")


def _moved(frame: pl.DataFrame, moved: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    sums = moved.group_by(keys).agg(
        pl.when(pl.col("bytes").is_not_null().any()).then(pl.col("bytes").sum()).alias("bytes"),
        pl.col("communicator").drop_nulls().n_unique().cast(pl.Int64).alias("communicators"),
    )
    return frame.join(sums, on=keys, how="left", maintain_order="left")


def _headers(name: str, count: str, unit: str = "ns") -> dict[str, str]:
    """As nsys names the columns of its summaries of CUDA, OS runtime."""
    own = {"avg": "Avg", "q1": "Q1", "med": "Med", "q3": "Q3", "min": "Min", "max": "Max", "std": "StdDev"}
    total = "Total Time" if unit == "ns" else "Total"
    return {
        "name": name,
        "time_pct": "Time",
        f"total_{unit}": total,
        "n": count,
        **{f"{k}_{unit}": v for k, v in own.items()},
        "min_ranks": "Min Rank",
        "max_ranks": "Max Rank",
        "rank": "Rank",
        "pid": "PID",
    }


#: As nsys names the columns of its summaries of NVTX, NCCL and MPI.
_TEXT_HEADERS = {
    "name": "Text",
    "n": "Count",
    "avg_ns": "Mean",
    "std_ns": "Std",
    "min_ns": "Min",
    "q1_ns": "Q1",
    "med_ns": "Median",
    "q3_ns": "Q3",
    "max_ns": "Max",
    "total_ns": "Sum",
    "rank": "Rank",
    "pid": "PID",
}

_NAMES = (BASE, MANGLED)
_MPI = ("mpi_p2p", "mpi_start_wait", "mpi_other", "mpi_collective")
_SHARE = "Time is the part of the sum of all rows, not of the wall clock."
_ALL = "Statistics over all ranks are exact, over all instances; nsys's own are merged from those of the ranks."


@dataclass(frozen=True)
class _Declared:
    name: str
    title: str
    what: Sum
    doc: str
    headers: Mapping[str, str] = field(default_factory=lambda: _TEXT_HEADERS)
    named: bool = False

    def recipe(self) -> Recipe:
        args = _NAMES if self.named else ()
        return Recipe(self.name, self.title, self.what, f"{self.doc} {_ALL}", args, ("name",), self.headers)


RECIPES = tuple(
    declared.recipe()
    for declared in (
        _Declared(
            "cuda_api_sum",
            "CUDA API Summary",
            Sum(_calls, "averaged"),
            f"Time in CUDA API calls, by function. {_SHARE}",
            _headers("Name", "Num Calls"),
        ),
        _Declared(
            "cuda_gpu_kern_sum",
            "CUDA GPU Kernel Summary",
            Sum(_kernels, "averaged"),
            f"Time in kernels, by name. {_SHARE}",
            _headers("Name", "Instances"),
            named=True,
        ),
        _Declared(
            "cuda_gpu_mem_time_sum",
            "CUDA GPU MemOps Summary (by Time)",
            Sum(_copies, "averaged"),
            f"Time in copies and memsets, by direction. {_SHARE}",
            _headers("Operation", "Count"),
        ),
        _Declared(
            "cuda_gpu_mem_size_sum",
            "CUDA GPU MemOps Summary (by Size)",
            Sum(partial(_copies, value="bytes"), "averaged", "bytes", share=False),
            "Bytes moved by copies and memsets, by direction.",
            _headers("Operation", "Count", "bytes"),
        ),
        _Declared(
            "osrt_sum",
            "OS Runtime Summary",
            Sum(partial(_records, kinds=("osrt",), event_class=_OSRT_CALL), "averaged"),
            f"Time in calls of the OS runtime, by function. {_SHARE}",
            _headers("Name", "Num Calls"),
        ),
        _Declared(
            "mpi_sum",
            "MPI Summary",
            Sum(partial(_records, kinds=_MPI), "linear"),
            f"Time in MPI calls, by function. {_SHARE}",
        ),
        _Declared(
            "nvtx_sum",
            "NVTX Range Summary",
            Sum(_ranges, "linear"),
            "Time in NVTX ranges (torch annotations) on the host, by text; nested ranges both count.",
        ),
        _Declared(
            "nvtx_gpu_proj_sum",
            "NVTX GPU Projection Summary",
            Sum(_projected, "linear"),
            "NVTX ranges carried over to the GPU: from the first start to the last end of what was launched inside.",
        ),
        _Declared(
            "nccl_sum",
            "NCCL Summary",
            Sum(nccl_calls, "linear", more=call_bytes),
            "Time in NCCL's calls on the host, with the bytes and communicators they name.",
        ),
        _Declared(
            "nccl_gpu_proj_sum",
            "NCCL GPU Projection Summary",
            Sum(nccl_projections, "linear", more=kernel_bytes),
            "NCCL's calls carried over to the GPU: how long what they launched took there, waiting for peers included.",
        ),
    )
)
