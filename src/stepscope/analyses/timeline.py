"""What ran when: every op of the window, by rank and stream, on one clock?

One row per op that runs in a rank's GPU window, also of work that was launched outside it (`inside` tells), with the
range and the stage that launched it. `--by range`: where each range's work lies on the GPU, from the start of the first
op launched in it to the end of the last, which is what a range on the host's timeline cannot say. `--by part`: the
window cut into what the rank was doing, compute, exposed communication, exposed copies or nothing; the rows sum to
`breakdown`. `--by host`: ranges and CUDA calls, when the host was in them. `--by counter`: sampled metrics, each value
until the next sample. `common_start_ns` is the start on the clock of the first file; within one file it is `start_ns`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypedDict

import numpy as np
import polars as pl

from stepscope.derive.accounting.forest import forest, launched
from stepscope.derive.accounting.partition import partition
from stepscope.derive.comm.across import Align
from stepscope.derive.comm.common_clock import common_clock
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.rank.needs import need_ops
from stepscope.derive.rank.pattern import check_pattern
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import Window
from stepscope.errors import CannotAnswer
from stepscope.intervals import Spans
from stepscope.intervals.arrays import I64, NONE, Mask
from stepscope.model.capturing import capture_with
from stepscope.model.profile import Profile
from stepscope.model.result import OfRank, Result


class _When(TypedDict):
    start_ns: Annotated[int, "start on the rank's own clock"]
    end_ns: Annotated[int, "end on the rank's own clock"]
    dur_ns: Annotated[int, "its length"]
    common_start_ns: Annotated[int, "start on the clock of all ranks"]


class _Key(OfRank):
    stream: Annotated[int, "stream id within the process"]


class Row(_Key, _When):
    role: Annotated[str, "compute, comm or copy"]
    inside: Annotated[bool, "launched in the window; else it only runs there"]
    stage: Annotated[str, "stage of the trainer's labels, or (no stage)"]
    range: Annotated[str | None, "range that launched it"]
    name: Annotated[str, "kernel, copy or memset"]


class _RangeKey(OfRank):
    depth: Annotated[int, "number of ranges around it"]


class ByRange(_RangeKey, _When):
    n: Annotated[int, "ops launched in it"]
    range: Annotated[str | None, "text of the range"]


class ByPart(OfRank, _When):
    part: Annotated[str, "compute, comm_exposed, copy_exposed or idle"]


class _HostKey(OfRank):
    tid: Annotated[int, "thread of the host"]
    depth: Annotated[int, "number of ranges around it, of a call too"]


class ByHost(_HostKey, _When):
    kind: Annotated[str, "range or call"]
    name: Annotated[str, "text of the range, or name of the call"]


class _CounterKey(OfRank):
    device: Annotated[int | None, "device of the counter; null for the host"]
    counter: Annotated[str, "name of the metric"]


class ByCounter(_CounterKey, _When):
    value: Annotated[float, "its value in that time"]


VARIANTS = {"by=range": ByRange, "by=part": ByPart, "by=host": ByHost, "by=counter": ByCounter}
By = Literal["op", "range", "part", "host", "counter"]


def timeline(
    profile: Profile,
    window: WindowSpec,
    *,
    by: Annotated[By, "what a row is"] = "op",
    stage: Annotated[str | None, "what a stage range is called (regular expression), instead of --labels"] = None,
    align: Align = "auto",
) -> Result:
    need_ops(profile)
    check_pattern("stage", stage)
    if by == "counter" and not profile.has("counters"):
        raise CannotAnswer("the profile has no sampled counters", capture_with("gpu-metrics"))
    chosen = windows(profile, window)
    clock = common_clock(profile, align)
    make: dict[str, Callable[[RankData, list[Window]], pl.DataFrame]] = {
        "op": lambda data, spans: _ops(profile, data, spans, stage),
        "range": lambda data, spans: _ranges(data, spans),
        "part": lambda data, spans: _parts(data, spans),
        "host": lambda data, spans: _host(profile, data, spans),
        "counter": lambda data, spans: _counters(profile, data, spans),
    }
    frames = []
    for data in ranks_of(profile):
        spans = [w for w in chosen.of(data.rank) if w.gpu_start_ns is not None]
        if not spans:
            continue
        frame = make[by](data, spans)
        if chosen.all:
            frame = frame.hstack(_names(data, spans, frame, host=by == "host"))
        frames.append(
            frame.with_columns(
                pl.lit(data.rank, pl.Int64).alias("rank"),
                pl.lit(data.pid, pl.Int64).alias("pid"),
                (pl.col("end_ns") - pl.col("start_ns")).alias("dur_ns"),
                pl.Series("common_start_ns", clock.at(data.rank, frame["start_ns"].to_numpy())),
            )
        )
    table = chosen.table(VARIANTS.get(f"by={by}", Row), pl.concat(frames) if frames else [])
    summary = {"ops": table.height} if by == "op" else {}
    return Result(table, chosen.rows(), summary, [*chosen.notes, *clock.notes], ranked_by="dur_ns")


def _names(data: RankData, spans: list[Window], frame: pl.DataFrame, host: bool) -> pl.DataFrame:
    """The window that each row is of: of an op the one it was launched in, else the first that it runs in."""
    ordered = sorted(spans, key=lambda w: _span(w, host))
    lo, hi = np.array([_span(w, host) for w in ordered]).T
    at = np.searchsorted(np.maximum.accumulate(hi), frame["start_ns"].to_numpy(), side="right")
    at = np.where((at < len(lo)) & (lo[np.minimum(at, len(lo) - 1)] < frame["end_ns"].to_numpy()), at, NONE)
    if "op" in frame.columns:
        launched_in = np.full(len(data.start), NONE)
        for k, w in enumerate(ordered):
            launched_in[w.ops] = k
        mine = launched_in[frame["op"].to_numpy()]
        at = np.where(mine != NONE, mine, at)
    keys = pl.DataFrame([w.key() for w in ordered])[np.maximum(at, 0)]
    return keys.select(pl.when(pl.Series(at != NONE)).then(pl.col(c)).alias(c) for c in keys.columns)


def _span(w: Window, host: bool) -> tuple[int, int]:
    """When the window is, on the GPU or on the host."""
    assert w.gpu_start_ns is not None and w.gpu_end_ns is not None
    if host and w.cpu_start_ns is not None and w.cpu_end_ns is not None:
        return w.cpu_start_ns, w.cpu_end_ns
    return w.gpu_start_ns, w.gpu_end_ns


def _shown(data: RankData, spans: list[Window]) -> tuple[I64, Mask]:
    """Ops that run in a window, and which of them were launched in one."""
    runs = np.zeros(len(data.start), dtype=bool)
    inside = np.zeros(len(data.start), dtype=bool)
    for w in spans:
        assert w.gpu_start_ns is not None and w.gpu_end_ns is not None
        runs |= (data.start < w.gpu_end_ns) & (data.end > w.gpu_start_ns)
        runs[w.ops] = True
        inside[w.ops] = True
    ops = np.flatnonzero(runs)
    return ops, inside[ops]


def _ops(profile: Profile, data: RankData, spans: list[Window], stage: str | None) -> pl.DataFrame:
    ops, inside = _shown(data, spans)
    mine = data.ops[ops]
    frame = pl.DataFrame(
        {
            "stream": mine["stream"].cast(pl.Int64),
            "start_ns": mine["start_ns"],
            "end_ns": mine["end_ns"],
            "role": mine["role"].cast(pl.String),
            "inside": inside,
            "stage": data.stage_of(ops, stage),
            "range": data.text_of(data.enclosing(ops)),
            "name": profile.names.gather(mine["name"]),
            "op": ops,
        }
    )
    return frame.sort("stream", "start_ns", "end_ns", maintain_order=True)


def _ranges(data: RankData, spans: list[Window]) -> pl.DataFrame:
    """The rank's own ranges that launched what runs in the window, each from its first op to its last."""
    ops, _ = _shown(data, spans)
    tree = data.once(forest)
    itself, _ = launched(data, tree, ops, data.start[ops], data.end[ops])
    gpu = tree.climb(itself)
    there = gpu.ops > 0
    rows = tree.rows[there]
    frame = pl.DataFrame(
        {
            "depth": tree.depth[there],
            "start_ns": gpu.first[there],
            "end_ns": gpu.last[there],
            "n": gpu.ops[there],
            "range": data.text_of(rows),
        }
    )
    return frame.sort("start_ns", "depth", "end_ns", maintain_order=True)


def _host(profile: Profile, data: RankData, spans: list[Window]) -> pl.DataFrame:
    """Own ranges and calls of the host from the beginning of a window, on the host or the GPU, to its end there."""
    begin, end = _host_span(spans)
    own, depth = data.own_ranges, data.once(forest).depth
    mine = data.ranges[own].with_columns(pl.Series("depth", depth), pl.lit("range").alias("what"))
    within = data.range_at(data.calls["tid"].cast(pl.Int64).to_numpy(), data.calls["start_ns"].to_numpy())
    level = np.zeros(data.calls.height, np.int64)
    if data.ranges.height:
        by_row = np.zeros(data.ranges.height, np.int64)
        by_row[own] = depth + 1
        level[within != NONE] = by_row[within[within != NONE]]
    calls = data.calls.with_columns(pl.Series("depth", level), pl.lit("call").alias("what"))
    names = ("tid", "depth", "start_ns", "end_ns", "name", "what")
    both = pl.concat([f.select(names) for f in (mine, calls)]).filter(
        (pl.col("start_ns") < end) & (pl.col("end_ns") > begin)
    )
    texts = profile.names.gather(both["name"])
    frame = both.with_columns(texts.alias("name"), pl.col("tid").cast(pl.Int64)).rename({"what": "kind"})
    return frame.sort("tid", "start_ns", "depth", maintain_order=True)


def _counters(profile: Profile, data: RankData, spans: list[Window]) -> pl.DataFrame:
    """Samples that hold in a window, each until the next one of its metric."""
    mine = next(frame for rank, frame in profile.by_rank("counters") if rank == data.rank)
    until = pl.col("start_ns").shift(-1).over("device", "name")
    inside = [(pl.col("start_ns") < hi) & (pl.col("end_ns") > lo) for lo, hi in (_span(w, False) for w in spans)]
    rows = (
        mine.sort("name", "device", "start_ns", maintain_order=True)
        .with_columns(end_ns=until.fill_null(pl.col("start_ns")))
        .filter(pl.any_horizontal(inside))
    )
    texts = profile.names.gather(rows["name"]).alias("counter")
    return rows.select(pl.col("device").cast(pl.Int64), texts, "start_ns", "end_ns", "value")


def _host_span(spans: list[Window]) -> tuple[int, int]:
    starts = [t for w in spans for t in (w.cpu_start_ns, w.gpu_start_ns) if t is not None]
    ends = [t for w in spans for t in (w.cpu_end_ns, w.gpu_end_ns) if t is not None]
    return min(starts), max(ends)


def _parts(data: RankData, spans: list[Window]) -> pl.DataFrame:
    frames = []
    for w in spans:
        assert w.gpu_start_ns is not None and w.gpu_end_ns is not None
        cut = partition(data, w.gpu_start_ns, w.gpu_end_ns)
        for part in ("compute", "comm_exposed", "copy_exposed", "idle"):
            spans_of: Spans = getattr(cut, part)
            frames.append(
                pl.DataFrame({"start_ns": spans_of.start, "end_ns": spans_of.end}).with_columns(
                    pl.lit(part).alias("part")
                )
            )
    return pl.concat(frames).sort("start_ns", maintain_order=True)
