"""Does the host keep the GPU fed: launch calls, queueing, full and starved queues?

A row is the launches of one kernel name: time in the call, time in the queue (from the call's return to the op's start;
0 where the op started first, counted in `early`), time on the GPU. A CUDA-graph launch is one launch of many ops. The
depth of a queue is the number of launches called but not yet started; it is time-weighted, from the first launch of the
window to its end. `blocked_ns` is time in launch calls while the stream's queue was full (1022 pending) and the GPU
busy: the host waited for room, which costs nothing. The opposite is a starved GPU: `summary.verdict` names
the part of the window's exact partition that takes more than half of it (`mixed` where none does). Where that is idle
time before a launch it is `host-bound` if most of it is one gap, else `overhead-bound`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

import numpy as np
import polars as pl

from stepscope.analyses.launches.bound import MIXED, Part, Parts, Verdict, verdict
from stepscope.analyses.launches.depth import Depth, blocked, depth_of
from stepscope.derive.accounting.named_window import sized_window
from stepscope.derive.host.launch_queue import LIMIT, Entries, entries, limit_of
from stepscope.derive.rank.at_once import of_each
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.rank.graphs import graph_launch, graph_notes
from stepscope.derive.rank.needs import need_launches
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import Window, Windows
from stepscope.intervals import Spans, covered, union
from stepscope.intervals.arrays import NONE, Mask, numbered
from stepscope.model.demangle import demangled
from stepscope.model.kernel_names import short_names
from stepscope.model.profile import Profile
from stepscope.model.result import OfRank, Result
from stepscope.model.statement import STATEMENT, listed, percent

GRAPH = "[graph launch]"
SLICES = 20


class _Depth(TypedDict):
    depth_max: Annotated[int, "most launches pending at once"]
    depth_mean: Annotated[float, "mean number of pending launches, weighted by time"]


class _Count(TypedDict):
    n: Annotated[int, "launches in the window"]


class QueueFigures(_Count, _Depth):
    empty_ns: Annotated[int, "time without a pending launch"]
    full_ns: Annotated[
        int | None,
        f"time with {LIMIT.count} or more launches pending: the queue is full; null where no limit is known (AMD)",
    ]
    blocked_ns: Annotated[
        int | None, "time in launch calls while the queue was full and the GPU busy; null with full_ns"
    ]


class Row(OfRank):
    name: Annotated[str, "kernel, copy or [graph launch]; the full name with --full"]
    n: Annotated[int, "launches"]
    ops: Annotated[int, "GPU ops that they launched"]
    call_ns: Annotated[int, "sum of the launch calls' durations"]
    call_mean_ns: Annotated[int, "mean call"]
    call_max_ns: Annotated[int, "longest call"]
    queue_ns: Annotated[int, "sum of the times from a call's return to the op's start"]
    queue_mean_ns: Annotated[int, "mean time in the queue"]
    queue_max_ns: Annotated[int, "longest time in the queue"]
    early: Annotated[int, "launches whose op started before the call returned: no time in the queue"]
    kernel_ns: Annotated[int, "sum of the ops' durations"]
    kernel_mean_ns: Annotated[int, "mean duration of an op"]


class _Stream(TypedDict):
    stream: Annotated[int, "stream id within the process"]


class _OfStream(_Stream, QueueFigures): ...


class ByStream(OfRank, _OfStream): ...


class ByRank(OfRank, QueueFigures): ...


class _Ends(TypedDict):
    start_ns: Annotated[int, "start of the slice"]
    end_ns: Annotated[int, "its end"]


class Slice(_Ends, _Depth):
    busy_pct: Annotated[float, "share of the slice in which the rank's GPU work runs"]


class ByTime(OfRank, Slice): ...


VARIANTS = {"by=stream": ByStream, "by=rank": ByRank, "by=time": ByTime}


def launches(
    profile: Profile,
    window: WindowSpec,
    *,
    by: Annotated[Literal["name", "stream", "rank", "time"], "a row is a kernel, a queue, or a slice of time"] = "name",
    full: Annotated[bool, "full names, not shortened"] = False,
) -> Result:
    need_launches(profile, "how it was launched")
    chosen = windows(profile, window)
    frames: list[pl.DataFrame] = []
    verdicts: list[tuple[Verdict, Parts]] = []

    def of_rank(data: RankData) -> list[tuple[pl.DataFrame, tuple[Verdict, Parts] | None]]:
        queue = _Queue(data) if by != "name" else None
        found = []
        for span in chosen.of(data.rank):
            if queue is None:
                table = _names(profile, data, span, full)
            else:
                table = pl.DataFrame(queue.slices(span) if by == "time" else queue.rows(span, by == "stream"))
            found.append((span.of_rank(table) if table.height else table, verdict(data, span)))
        return found

    for table, judged in (one for found in of_each(profile, ranks_of(profile), of_rank) for one in found):
        if table.height:
            frames.append(table)
        if judged:
            verdicts.append(judged)
    summary = {
        "verdict": [v for v, _ in verdicts],
        "parts": [p for _, p in verdicts],
        STATEMENT: _statement(chosen, [v for v, _ in verdicts], [p for _, p in verdicts]),
    }
    row_type = VARIANTS.get(f"by={by}", Row)
    result = chosen.table(row_type, pl.concat(frames) if frames else [])
    ranked = {"name": "call_ns", "time": ""}.get(by, "blocked_ns")
    return Result(result, chosen.rows(), summary, [*chosen.notes, *graph_notes(profile)], ranked_by=ranked)


#: What a sentence calls the parts of a window.
_PARTS: dict[Part, str] = {
    "compute_ns": "compute",
    "comm_exposed_ns": "exposed communication",
    "copy_exposed_ns": "exposed copies",
    "starved_ns": "waiting for the host to launch",
    "sync_ns": "synchronizing calls",
    "alloc_ns": "the allocator",
    "load_ns": "loading code",
    "queue_ns": "launched work that waits for its turn",
    "tail_ns": "idle time after the last op",
    "unlinked_ns": "idle time without a known cause",
}


def _statement(chosen: Windows, verdicts: list[Verdict], parts: list[Parts]) -> str:
    """What bounds the windows, by the verdict of most of them, and what share their largest parts have."""
    where = sized_window(chosen.spans)
    if not verdicts:
        return f"Nothing runs on the GPU in {where}."
    usual, times = Counter(v["verdict"] for v in verdicts).most_common(1)[0]
    alike = [p for v, p in zip(verdicts, parts, strict=True) if v["verdict"] == usual]
    sums = {name: sum(p[part] for p in alike) for part, name in _PARTS.items()}
    total = sum(sums.values())
    largest = sorted(sums, key=lambda name: -sums[name])[: 2 if usual == MIXED else 1]
    shares = listed(f"{name} takes {percent(sums[name], total)}" for name in largest if sums[name])
    ranks = len({v["rank"] for v in verdicts})
    unit = "on {} of {} ranks" if ranks == len(verdicts) else "in {} of {} windows"
    on = f" {unit.format(times, len(verdicts))}" if len(verdicts) > 1 else ""
    half = ", neither more than half" * (usual == MIXED)
    several_windows = len(verdicts) > ranks
    text = f"{where} {'are' if several_windows else 'is'} {usual}{on}: {shares}{half}."
    return text[0].upper() + text[1:]


def _names(profile: Profile, data: RankData, span: Window, full: bool) -> pl.DataFrame:
    """Launches of the window by what they launched; a row of `each` is one launch call."""
    ops = span.ops[data.launch[span.ops] != NONE]
    call = data.launch[ops]
    order = np.argsort(call, kind="stable")  # ops are in start order: the first of a call started first
    ops, call = ops[order], call[order]
    first = np.flatnonzero(np.r_[True, call[1:] != call[:-1]]) if len(ops) else ops
    call = call[first]
    each = pl.DataFrame(
        {
            "id": data.name[ops[first]],
            "graph": graph_launch(data)[ops[first]],
            "start": data.start[ops[first]],
            "called": data.calls["start_ns"].to_numpy()[call],
            "returned": data.calls["end_ns"].to_numpy()[call],
            "ops": np.diff(np.r_[first, len(ops)]),
            "ns": np.add.reduceat(data.end[ops] - data.start[ops], first) if len(first) else first,
        }
    )
    ids, at = numbered(each["id"].to_numpy())
    text = profile.names.gather(ids)
    texts = pl.concat([demangled(text) if full else short_names(text), pl.Series([GRAPH])])
    # Names may be the same in short: of each text the first, so that launches are grouped by numbers, not by texts.
    alike = texts.to_frame("text").with_row_index("at").select(pl.col("at").first().over("text")).to_series().to_numpy()
    shown = alike[np.where(each["graph"].to_numpy(), len(ids), at)]
    wait = pl.col("start") - pl.col("returned")
    table = (
        each.with_columns(
            pl.Series("name", shown),
            (pl.col("returned") - pl.col("called")).alias("call_ns"),
            pl.max_horizontal(wait, 0).alias("queue_ns"),
            (wait < 0).alias("early"),
        )
        .group_by("name")
        .agg(
            pl.len().cast(pl.Int64).alias("n"),
            pl.col("ops").sum().cast(pl.Int64),
            pl.col("call_ns").sum(),
            *_mean_max("call_ns"),
            pl.col("queue_ns").sum(),
            *_mean_max("queue_ns"),
            pl.col("early").sum().cast(pl.Int64),
            pl.col("ns").sum().alias("kernel_ns"),
            (pl.col("ns").sum() / pl.col("ops").sum()).round(0).cast(pl.Int64).alias("kernel_mean_ns"),
        )
    )
    named = table.with_columns(texts.gather(table["name"]).alias("name"))
    return named.sort(["call_ns", "name"], descending=[True, False])


def _mean_max(column: str) -> tuple[pl.Expr, pl.Expr]:
    stem = column.removesuffix("_ns")
    mean = pl.col(column).mean().round(0).cast(pl.Int64).alias(f"{stem}_mean_ns")
    return mean, pl.col(column).max().alias(f"{stem}_max_ns")


class _Queue:
    """Launch queues of one rank."""

    def __init__(self, data: RankData) -> None:
        self._data = data
        self._entries: Entries = entries(data)
        self._busy: Spans = union(data.start, data.end)
        self._limit = limit_of(data)

    def rows(self, span: Window, per_stream: bool) -> Sequence[QueueFigures]:
        """Depth figures of every stream, or of all streams together."""
        observed = self._observed(span)
        if observed is None:
            return []
        e, (lo, hi) = self._entries, observed
        in_window = np.isin(e.call, self._data.launch[span.ops])
        if not per_stream:
            # A queue is full stream by stream; all streams together have no limit of their own.
            parts = [self._row(e.stream == s, lo, hi, in_window) for s in np.unique(e.stream)]
            together = self._row(np.ones(len(e.stream), dtype=bool), lo, hi, in_window)
            if self._limit:
                together["full_ns"] = sum(p["full_ns"] or 0 for p in parts)
                together["blocked_ns"] = sum(p["blocked_ns"] or 0 for p in parts)
            return [together]
        streams = np.unique(e.stream[in_window])
        each: list[_OfStream] = [{"stream": int(s), **self._row(e.stream == s, lo, hi, in_window)} for s in streams]
        return each

    def _row(self, mine: Mask, lo: int, hi: int, in_window: Mask) -> QueueFigures:
        depth = depth_of(self._entries, mine)
        length, pending = depth.between(lo, hi)
        full = depth.at_least(self._limit).clip(lo, hi) if self._limit else None
        return {
            "n": int((mine & in_window).sum()),
            "depth_max": int(pending.max(initial=0)),
            "depth_mean": float((length * pending).sum() / (hi - lo)),
            "empty_ns": hi - lo - int(length[pending > 0].sum()),
            "full_ns": None if full is None else full.length(),
            "blocked_ns": None if full is None else blocked(self._entries, mine, full, self._busy),
        }

    def slices(self, span: Window) -> list[Slice]:
        """The depth over time: equal slices of the observed span."""
        observed = self._observed(span)
        if observed is None:
            return []
        depth = depth_of(self._entries, np.ones(len(self._entries.stream), dtype=bool))
        edges = np.linspace(*observed, SLICES + 1).astype(np.int64)
        busy = covered(edges[:-1], edges[1:], self._busy)
        return [
            _slice(depth, int(lo), int(hi), int(b))
            for lo, hi, b in zip(edges[:-1], edges[1:], busy, strict=True)
            if lo < hi
        ]

    def _observed(self, span: Window) -> tuple[int, int] | None:
        """From the first launch of the window to the end of its GPU work; the window itself where it is in GPU time."""
        if span.gpu_start_ns is None or span.gpu_end_ns is None:
            return None
        if span.clipped or len(span.ops) == 0:
            return span.gpu_start_ns, span.gpu_end_ns
        return min(int(self._data.launched_at[span.ops].min()), span.gpu_start_ns), span.gpu_end_ns


def _slice(depth: Depth, lo: int, hi: int, busy: int) -> Slice:
    length, pending = depth.between(lo, hi)
    return {
        "start_ns": lo,
        "end_ns": hi,
        "depth_max": int(pending.max(initial=0)),
        "depth_mean": float((length * pending).sum() / (hi - lo)),
        "busy_pct": 100.0 * busy / (hi - lo),
    }
