"""Reports on NVTX ranges as such: how long they took on the host."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.intervals.arrays import NONE
from stepscope.model import nesting
from stepscope.nsys.reports.attribution import threads
from stepscope.nsys.reports.cuda import times
from stepscope.nsys.reports.spec import Args, Report, Rows, columns
from stepscope.nsys.reports.statistics import Source, time_sum
from stepscope.nsys.reports.tree import tree
from stepscope.nsys.reports.view import View, ints

STYLES = {"pushpop": "PushPop", "startend": "StartEnd"}


def _ranges(*kinds: str) -> Source:
    def source(view: View, args: Args) -> Rows:
        view.need("ranges")
        ranges = view.ranges
        frame = ranges.filter(pl.col("kind").is_in(kinds)).select(
            "label",
            pl.col("kind").cast(pl.String).replace_strict(STYLES, return_dtype=pl.String, default=None).alias("style"),
            (pl.col("end_ns") - pl.col("start_ns")).alias("duration"),
        )
        return Rows(frame, {"label": view.labels})

    return source


def _pushpop_trace(view: View, args: Args) -> pl.DataFrame:
    view.need("ranges")
    ranges = view.ranges.filter(pl.col("kind") == "pushpop")
    start, end = ints(ranges, "start_ns", "end_ns")
    ranges_tree = tree(nesting.nest(threads(ranges), start, end))
    number = view.range_numbers(ranges)
    inside = ranges_tree.parent != NONE
    within = np.zeros(len(start), dtype=np.int64)
    np.add.at(within, ranges_tree.parent[inside], (end - start)[inside])
    labels = Rows(ranges, {"label": view.labels}).decoded()["label"]
    level = pl.Series("level", ranges_tree.level)
    frame = ranges.select(
        "start_ns",
        "end_ns",
        (pl.col("end_ns") - pl.col("start_ns")).alias("duration"),
        pl.Series("in_children", within),
        (pl.col("end_ns") - pl.col("start_ns") - pl.Series(within)).alias("own"),
        labels.alias("label"),
        view.pid(pl.col("rank")).alias("pid"),
        "tid",
        level,
        pl.Series("n_children", ranges_tree.children()),
        pl.Series("number", number),
        ranges_tree.parent_numbers(number).alias("parent_number"),
        pl.Series("stack", ranges_tree.stacks(number), dtype=pl.String),
        (pl.lit("--").repeat_by(level).list.join("") + labels).alias("name_tree"),
    )
    return frame.sort("start_ns", "duration", "number")


_DOC = "Time is the part of the sum of all rows; nested ranges both count. Ranges of a domain are `domain:text`."

REPORTS = (
    Report(
        "nvtx_sum",
        "NVTX Range Summary",
        columns(*times("Instances", "Style", "Range")),
        time_sum(_ranges("pushpop", "startend"), "style", "label"),
        f"Time in NVTX ranges on the host, by text. {_DOC}",
    ),
    Report(
        "nvtx_pushpop_sum",
        "NVTX Push/Pop Range Summary",
        columns(*times("Instances", "Range")),
        time_sum(_ranges("pushpop"), "label"),
        f"Time in push/pop ranges on the host, by text. {_DOC}",
    ),
    Report(
        "nvtx_startend_sum",
        "NVTX Start/End Range Summary",
        columns(*times("Instances", "Range")),
        time_sum(_ranges("startend"), "label"),
        f"Time in start/end ranges on the host, by text. {_DOC}",
    ),
    Report(
        "nvtx_pushpop_trace",
        "NVTX Push/Pop Range Trace",
        columns(
            *("Start:ts_ns", "End:ts_ns", "Duration:dur_ns", "DurChild:dur_ns", "DurNonChild:dur_ns", "Name", "PID"),
            *("TID", "Lvl", "NumChild", "RangeId", "ParentId", "RangeStack", "NameTree"),
        ),
        _pushpop_trace,
        "Every push/pop range, in order of its start, with its place in the stack of its thread.",
    ),
)
