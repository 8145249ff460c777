"""The pipeline's work on each rank: its chunks on the GPU, and the time with nothing to do (semantics §7).

The bubble of a rank is the time of its step with neither compute nor communication other than the pipeline's. A step
has five phases: `before` the first chunk, `warm-up` until the first backward pass, `steady` until the end of the last
forward pass, `drain` until the end of the last chunk, and `after` (gradients, optimizer).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, TypedDict

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.analyses.pipeline.inference import pieces
from stepscope.derive.comm.purpose import purpose_of
from stepscope.derive.pipelines.schedules import PIPELINE
from stepscope.derive.rank.at_once import of_each
from stepscope.derive.rank.data import COMM, COMPUTE, RankData, ranks_of
from stepscope.derive.windows.choosing import step
from stepscope.derive.windows.cut_off import notes_on_cut
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import Window, Windows
from stepscope.intervals import Spans, covered, gaps, union
from stepscope.intervals.arrays import I64, NONE, Mask
from stepscope.model.labels import parse_setup
from stepscope.model.profile import Profile
from stepscope.model.result import OfRank


class OfStage(OfRank):
    stage: Annotated[int | None, "place in the pipeline, from the setup label"]


class _Bubble(TypedDict):
    bubble_ns: Annotated[int, "of it, with neither compute nor communication other than the pipeline's"]
    bubble_pct: Annotated[float | None, "the same as a share"]


class _RankKey(OfStage):
    step_ns: Annotated[int, "GPU time from the first op of the step to the end of its last"]


class ByRank(_RankKey, _Bubble):
    ideal_pct: Annotated[
        float | None, "share that the schedule leaves idle on ideal stages; null where it is not known"
    ]
    over_pct: Annotated[float | None, "bubble beyond the ideal, in percentage points"]


class _PhaseKey(OfStage):
    phase: Annotated[str, "before, warm-up, steady, drain or after"]
    phase_ns: Annotated[int, "its length"]


class ByPhase(_PhaseKey, _Bubble): ...


PHASES = ("before", "warm-up", "steady", "drain", "after")

#: One row per chunk, in order of the host.
CHUNKS: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int64,
    "pid": pl.Int64,
    "stage": pl.Int64,
    "step": pl.Int64,
    "seq": pl.Int64,
    "kind": pl.String,
    "mb": pl.Int64,
    "part": pl.Int64,
    "label": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "compute_ns": pl.Int64,
    "bubble_ns": pl.Int64,
    "before_ns": pl.Int64,
}


class Work(Struct):
    """One rank's step."""

    rank: int
    pid: int | None
    stage: int | None
    stages: int | None
    start: int
    end: int
    bubble: Spans
    chunks: pl.DataFrame
    piped: int  # communication ops of the pipeline

    def phases(self) -> list[ByPhase]:
        """The phases of the rank, over all its steps; their lengths sum to the window, their bubbles to the bubble."""
        total = {phase: [0, 0] for phase in PHASES}
        edges, names = [self.start], ["before"]
        for _, mine in self.chunks.group_by("step", maintain_order=True):
            edges += _cuts(mine)
            names += ["warm-up", "steady", "drain", "after"]  # after: until the next step's first chunk
        edges.append(self.end)
        at = np.maximum.accumulate(np.clip(np.array(edges, dtype=np.int64), self.start, self.end))
        idle = np.diff(self.bubble.measure_before(at))
        for name, length, free in zip(names, np.diff(at).tolist(), idle.tolist(), strict=True):
            total[name][0] += length
            total[name][1] += free
        who: OfStage = {"rank": self.rank, "pid": self.pid, "stage": self.stage}
        return [
            {**who, "phase": p, "phase_ns": n, "bubble_ns": b, "bubble_pct": 100.0 * b / n if n else None}
            for p, (n, b) in total.items()
        ]


def _cuts(chunks: pl.DataFrame) -> list[int]:
    """First chunk, first backward pass, end of the last forward pass, end of the last chunk."""
    back = chunks.filter(pl.col("kind").str.contains("b"))["start_ns"]
    ahead = chunks.filter(pl.col("kind").str.contains("f"))["end_ns"]
    first, last = int(chunks["start_ns"].min()), int(chunks["end_ns"].max())  # type: ignore[arg-type]
    turn = int(back.min()) if len(back) else last  # type: ignore[arg-type]
    return [first, turn, max(turn, int(ahead.max()) if len(ahead) else turn), last]  # type: ignore[arg-type]


def works(part: Profile, spec: WindowSpec) -> tuple[list[Work], Windows]:
    """The work of every rank of one part of a profile, in its step; and the windows, without their ops."""
    chosen = step(part, spec)
    per_rank = of_each(
        part,
        ranks_of(part),
        lambda data: [work_of(part, data, span) for span in chosen.of(data.rank) if span.gpu_start_ns is not None],
    )
    notes = [*chosen.notes, *(n for data in ranks_of(part) for n in notes_on_cut(data))]
    every = [work for of_rank in per_rank for work in of_rank]
    return every, Windows([replace(span, ops=np.empty(0, np.int64)) for span in chosen.spans], notes)


def work_of(profile: Profile, data: RankData, span: Window) -> Work:
    """The pipeline's work of one rank in its step."""
    assert span.gpu_start_ns is not None and span.gpu_end_ns is not None
    lo, hi = span.gpu_start_ns, span.gpu_end_ns
    near = np.flatnonzero((data.start < hi) & (data.end > lo))
    comm = near[data.role[near] == COMM]
    piped = (purpose_of(profile, data, comm) == PIPELINE).to_numpy() if len(comm) else np.zeros(0, dtype=bool)
    busy = np.concatenate([near[data.role[near] == COMPUTE], comm[~piped]])
    free = gaps(union(data.start[busy], data.end[busy]).clip(lo, hi), lo, hi)
    setup = parse_setup(data.setup) if data.setup else None
    stage, stages = setup.axes.get("pp", (None, None)) if setup else (None, None)
    chunks = _chunks(data, span, free, comm[piped])
    chunks = chunks.with_columns(
        pl.lit(data.rank, pl.Int64).alias("rank"),
        pl.lit(data.pid, pl.Int64).alias("pid"),
        pl.lit(stage, pl.Int64).alias("stage"),
    )
    chunks = chunks.select([pl.col(k).cast(t) for k, t in CHUNKS.items()])
    return Work(data.rank, data.pid, stage, stages, lo, hi, free, chunks, int(piped.sum()))


def _chunks(data: RankData, span: Window, free: Spans, piped: I64) -> pl.DataFrame:
    """The chunks that the rank's ranges name, with where their ops ran."""
    rows = data.outermost_named(data.profile.labels.any_micro_batch)
    frame: pl.DataFrame | None = None
    if len(rows):
        wanted = np.zeros(data.ranges.height, dtype=bool)
        wanted[rows] = True
        ops = span.ops[~np.isin(span.ops, piped)]
        within = data.enclosing(ops)
        of = data.ancestors_until(within, wanted)
        order = np.argsort(of, kind="stable")
        ops, of, weights = ops[order], of[order], _of_weights(data, within)[order]
        first, last = np.searchsorted(of, rows), np.searchsorted(of, rows, side="right")
        there = first < last
        if there.any():
            frame = _figures(data, rows[there], ops, weights, first[there], last[there])
    if frame is None:
        return pl.DataFrame(schema=CHUNKS)
    bubble = covered(frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy(), free)
    label = data.text_of(frame["row"].to_numpy())
    frame = frame.with_columns(pl.Series("bubble_ns", bubble), label.alias("label"))
    return _numbered(frame, data.profile.labels.micro_batches)


def _of_weights(data: RankData, within: I64) -> Mask:
    """Whether a range lies in a stage of the weights' gradient."""
    stages, name = data.profile.names_last(data.profile.labels.stage), data.ranges["name"].to_numpy()
    at = data.ancestors_until(within, stages.is_not_null().to_numpy()[name])
    of_weights: Mask = stages.str.ends_with("_w").fill_null(False).to_numpy()[name]
    inside: Mask = (at != NONE) & of_weights[at]
    return inside


def _figures(data: RankData, rows: I64, ops: I64, weights: Mask, first: I64, last: I64) -> pl.DataFrame:
    """By chunk, whose ops are [first, last) of `ops`: where they ran, and the time in which one of them computes."""
    sizes = last - first
    at = np.repeat(first, sizes) + np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    begins = np.cumsum(sizes) - sizes
    start, end = data.start[ops[at]], data.end[ops[at]]
    low, high = np.minimum.reduceat(start, begins), np.maximum.reduceat(end, begins)
    # Chunks one behind the other on one axis, so that no two of them touch: one union is that of each.
    lift = np.r_[0, np.cumsum(high - low + 1)[:-1]] - low
    computes = data.role[ops[at]] == COMPUTE
    of = np.repeat(np.arange(len(rows)), sizes)[computes]
    compute = union(start[computes] + lift[of], end[computes] + lift[of])
    return pl.DataFrame(
        {
            "row": rows,
            "start_ns": low,
            "end_ns": high,
            "compute_ns": covered(low + lift, high + lift, compute),
            "weights": np.maximum.reduceat(weights[at], begins),
        }
    )


def _numbered(frame: pl.DataFrame, patterns: Sequence[str]) -> pl.DataFrame:
    """With kind, micro-batch, part and step; and the bubble between each chunk and the one before it."""
    named = [pieces(text, patterns) for text in frame["label"].to_list()]
    frame = frame.with_columns(
        pl.Series("kind", ["".join(sorted({p.kind for p in t}, key="fbw".index)) for t in named], dtype=pl.String),
        pl.Series("mb", [t[0].mb for t in named], dtype=pl.Int64),
        pl.Series("part", [t[0].part for t in named], dtype=pl.Int64),
        pl.int_range(pl.len()).cast(pl.Int64).alias("seq"),
    )
    if (frame["kind"] == "w").any():  # some backward passes leave the weights' gradient for later: not alike
        whole = (pl.col("kind") == "b") & pl.col("weights")
        frame = frame.with_columns(pl.when(whole).then(pl.lit("bw")).otherwise("kind").alias("kind"))
    if frame.filter(pl.col("kind") != "w")["part"].null_count() == 0:
        # The first forward pass of the first micro-batch begins a step.
        begins = (pl.col("kind") == "f") & (pl.col("mb") == 0) & (pl.col("part") == pl.col("part").min())
        return _between(frame.with_columns((begins.cast(pl.Int64).cum_sum() - 1).clip(0).alias("step")))
    # Without a part in the label, a micro-batch that comes again is in the rank's next virtual stage.
    frame = frame.with_columns(pl.lit(0, pl.Int64).alias("step"))
    nth = pl.int_range(pl.len()).over("kind", "mb")
    part = pl.when(pl.col("kind") == "f").then(nth).otherwise(pl.len().over("kind", "mb") - 1 - nth)
    return _between(frame.with_columns(pl.coalesce("part", part.cast(pl.Int64)).alias("part")))


def _between(frame: pl.DataFrame) -> pl.DataFrame:
    gap = pl.col("start_ns") - pl.col("end_ns").cum_max().shift(1)
    return frame.with_columns(gap.clip(0).alias("before_ns"))
