"""Do streams really run together, and what keeps those that should from doing so?

`--by count` (default): the window split by how many streams are busy. `--by pair`: how long two streams run together,
as a share of the less busy one. `--by stream`: each stream's window, exactly: busy, or why its next op did not run yet.
`--by exposed`: the same for communication that no compute hides: why the stream of the next compute kernel stood still.
`--by op`: the launched ops for which their stream stood still longest, and what ended last before they started.

Reasons: `sync`, `alloc`, `load`, `api`, `host`: not launched yet, and what the launching thread did instead (as in
`idle`); then, from the launch on, `stream`: the op before it on its stream still ran; `event`: an op behind an event
that the stream waited for still ran, or one of another stream that a CUDA graph makes it wait for; `unknown`: launched,
and nothing in the trace holds it (launch latency, no room on the GPU, order with the default stream, which traces do
not record). `tail`: no op follows; `unlinked`: the op that follows has no launch record. Of two dependencies the one
that ended last counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypedDict

import numpy as np
import polars as pl

from stepscope.analyses.concurrency.blocked import REASONS, Waits, next_of, reasons, standing
from stepscope.derive.accounting.partition import partition
from stepscope.derive.graph.dependencies import Dependencies, dependencies
from stepscope.derive.host.idle_causes import Calls
from stepscope.derive.rank.data import COMPUTE, RankData, ranks_of
from stepscope.derive.rank.graphs import graph_notes
from stepscope.derive.rank.needs import need_communication, need_launches, need_ops
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import Window
from stepscope.errors import CannotAnswer
from stepscope.intervals import Spans, gaps, intersect, union
from stepscope.intervals.arrays import I64, NONE
from stepscope.model.capturing import capture_with
from stepscope.model.kernel_names import short_names, shorten
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.result import OfRank, Result

BUSY = "busy"
_NOTHING = Waits(*(np.empty(0, np.int64) for _ in range(5)))


class _Time(TypedDict):
    total_ns: Annotated[int, "time"]
    share_pct: Annotated[float | None, "share of the window"]


class _Key(OfRank):
    streams: Annotated[int, "how many streams are busy"]


class Row(_Key, _Time): ...


class ByPair(OfRank):
    stream_a: Annotated[int, "stream id within the process"]
    stream_b: Annotated[int, "another one"]
    busy_a_ns: Annotated[int, "time the first is busy"]
    busy_b_ns: Annotated[int, "time the second is busy"]
    together_ns: Annotated[int, "time both are"]
    together_pct: Annotated[float | None, "as a share of the less busy one; null where that is never busy"]


class _StreamKey(OfRank):
    stream: Annotated[int, "stream id within the process"]
    reason: Annotated[str, "busy, or why its next op did not run yet (see above)"]
    n: Annotated[int, "stretches"]


class ByStream(_StreamKey, _Time): ...


class _ExposedKey(OfRank):
    reason: Annotated[str, "why the next op did not run yet (see above)"]
    waits_for: Annotated[str | None, "op that was waited for"]
    n: Annotated[int, "stretches"]


class ByExposed(_ExposedKey, _Time): ...


class ByOp(OfRank):
    name: Annotated[str, "op that waited"]
    stream: Annotated[int, "its stream"]
    range: Annotated[str | None, "range that launched it"]
    launched_ns: Annotated[int, "start of the launch call"]
    start_ns: Annotated[int, "start on the GPU"]
    wait_ns: Annotated[int, "from the launch call to the start"]
    stalled_ns: Annotated[int, "part of the wait in which nothing before it ran on its stream"]
    reason: Annotated[str, "what ended last before it started: stream, event, or launch"]
    waits_for: Annotated[str | None, "op that ended last; null for launch"]
    waits_for_stream: Annotated[int | None, "its stream"]
    held_ns: Annotated[int, "part of the wait until that op ended"]
    unknown_ns: Annotated[int, "rest of the wait: nothing in the trace holds the op"]


VARIANTS = {"by=pair": ByPair, "by=stream": ByStream, "by=exposed": ByExposed, "by=op": ByOp}
By = Literal["count", "pair", "stream", "exposed", "op"]


def concurrency(
    profile: Profile,
    window: WindowSpec,
    *,
    by: Annotated[By, "what a row is"] = "count",
) -> Result:
    need_ops(profile)
    if by == "exposed":
        need_communication(profile)
    if by in ("count", "pair") and _most_streams(profile) < 2:
        raise CannotAnswer(
            "all GPU work is on one stream, so nothing can run together",
            "profile a run that uses several streams; `--by stream` says what this one waited for",
        )
    if by in ("stream", "exposed", "op"):
        need_launches(profile, "what an op waited for", "; `--by pair` shows what ran together")
    chosen = windows(profile, window)
    notes = [*chosen.notes, *graph_notes(profile)]
    table: list[Mapping[str, object]] = []
    ops: list[pl.DataFrame] = []
    summary: list[dict[str, int | float | None]] = []
    missing = 0
    for data in ranks_of(profile):
        asked = by in ("stream", "exposed", "op")
        links = dependencies(data, data.syncs) if asked else None
        missing += links.unresolved if links else 0
        for span in chosen.of(data.rank):
            if span.gpu_start_ns is None or span.gpu_end_ns is None:
                continue
            busy = _busy(data, span.gpu_start_ns, span.gpu_end_ns)
            counts = _counts(busy, span.gpu_start_ns, span.gpu_end_ns)
            summary.append(_summary(span, counts))
            if by == "count":
                table += span.keyed(_count_rows(span, counts))
            elif links is None:
                table += span.keyed(_pairs(span, busy))
            elif by == "stream":
                table += span.keyed(_stream_rows(data, links, span, busy))
            elif by == "exposed":
                table += span.keyed(_exposed_rows(profile, data, links, span))
            elif len(launched := span.ops[data.launch[span.ops] != NONE]):
                ops.append(span.of_rank(_ops(profile, data, links, launched)))
    if by in ("stream", "exposed", "op"):
        notes += _event_notes(profile, missing)
    shown = chosen.table(VARIANTS.get(f"by={by}", Row), pl.concat(ops) if ops else table)
    ranked = {"pair": "together_ns", "op": "stalled_ns"}.get(by, "total_ns")
    return Result(shown, chosen.rows(), {"together": summary}, notes, ranked_by=ranked)


def _most_streams(profile: Profile) -> int:
    per_rank = profile.ops.group_by("rank").agg(pl.struct("device", "stream").n_unique())
    return int(per_rank["device"].max() or 0)  # type: ignore[arg-type]


def _busy(data: RankData, lo: int, hi: int) -> dict[int, Spans]:
    """When each stream that works in the window is busy."""
    near = (data.start < hi) & (data.end > lo)
    return {
        int(s): union(data.start[near & (data.stream == s)], data.end[near & (data.stream == s)]).clip(lo, hi)
        for s in np.unique(data.stream[near])
    }


def _counts(busy: dict[int, Spans], lo: int, hi: int) -> I64:
    """Time with 0, 1, 2 … streams busy; sums to the window."""
    ups = np.concatenate([np.empty(0, np.int64), *(s.start for s in busy.values())])
    downs = np.concatenate([np.empty(0, np.int64), *(s.end for s in busy.values())])
    edges, at = np.unique(np.concatenate([ups, downs, [lo, hi]]), return_inverse=True)
    change = np.zeros(len(edges), np.int64)
    at = at.reshape(-1)
    np.add.at(change, at[: len(ups)], 1)
    np.add.at(change, at[len(ups) : len(ups) + len(downs)], -1)
    total = np.zeros(len(busy) + 1, np.int64)
    np.add.at(total, np.cumsum(change)[:-1], np.diff(edges))
    return total


def _summary(span: Window, counts: I64) -> dict[str, int | float | None]:
    busy = int(counts[1:].sum())
    return {
        "rank": span.rank,
        "index": span.index,
        "window_ns": span.gpu_ns,
        "busy_ns": busy,
        "two_or_more_ns": int(counts[2:].sum()),
        "mean_streams": float((counts * np.arange(len(counts))).sum() / busy) if busy else None,
    }


def _time(ns: int, span: Window) -> _Time:
    return {"total_ns": ns, "share_pct": 100.0 * ns / span.gpu_ns if span.gpu_ns else None}


def _count_rows(span: Window, counts: I64) -> list[Row]:
    return [{**span.who, "streams": k, **_time(ns, span)} for k, ns in enumerate(counts.tolist())]


def _pairs(span: Window, busy: dict[int, Spans]) -> list[ByPair]:
    table: list[ByPair] = []
    streams = sorted(busy)
    for i, a in enumerate(streams):
        for b in streams[i + 1 :]:
            length = busy[a].length(), busy[b].length()
            together = intersect(busy[a], busy[b]).length()
            table.append(
                {
                    **span.who,
                    "stream_a": a,
                    "stream_b": b,
                    "busy_a_ns": length[0],
                    "busy_b_ns": length[1],
                    "together_ns": together,
                    "together_pct": 100.0 * together / min(length) if min(length) else None,
                }
            )
    return table


def _stream_rows(data: RankData, dependencies: Dependencies, span: Window, busy: dict[int, Spans]) -> list[ByStream]:
    assert span.gpu_start_ns is not None and span.gpu_end_ns is not None
    calls = Calls(data)
    table: list[ByStream] = []
    for stream, spans in busy.items():
        total = _time(spans.length(), span)
        table.append({**span.who, "stream": stream, "reason": BUSY, "n": len(spans), **total})
        bare = gaps(spans, span.gpu_start_ns, span.gpu_end_ns)
        waits = reasons(data, dependencies, calls, bare, next_of(data, np.flatnonzero(data.stream == stream), bare.end))
        length = waits.end - waits.start
        for k in np.unique(waits.reason).tolist():
            mine = waits.reason == k
            total = _time(int(length[mine].sum()), span)
            table.append({**span.who, "stream": stream, "reason": REASONS[k], "n": int(mine.sum()), **total})
    return table


def _exposed_rows(profile: Profile, data: RankData, dependencies: Dependencies, span: Window) -> list[ByExposed]:
    assert span.gpu_start_ns is not None and span.gpu_end_ns is not None
    bare = partition(data, span.gpu_start_ns, span.gpu_end_ns).comm_exposed
    after = next_of(data, np.flatnonzero(data.role == COMPUTE), bare.end)
    on = np.where(after != NONE, data.stream[np.maximum(after, 0)], NONE)
    calls, parts = Calls(data), []
    for stream in np.unique(on).tolist():
        mine = Spans(bare.start[on == stream], bare.end[on == stream])
        ops = np.flatnonzero(data.stream == stream) if (after[on == stream] != NONE).all() else np.empty(0, np.int64)
        parts += standing(data, dependencies, calls, ops, mine)
    waits = Waits(*(np.concatenate(c) for c in zip(*(w.columns() for w in parts), strict=True))) if parts else _NOTHING
    frame = pl.DataFrame({"reason": waits.reason, "holder": _holder_names(data, waits), "ns": waits.end - waits.start})
    totals = (
        frame.group_by("reason", "holder")
        .agg(pl.len().alias("n"), pl.col("ns").sum())
        .sort(["ns", "reason", "holder"], descending=[True, False, False])
    )
    names = profile.names
    return [
        {
            **span.who,
            "reason": REASONS[k],
            "waits_for": None if h == NONE else shorten(names[h]),
            "n": n,
            **_time(ns, span),
        }
        for k, h, n, ns in totals.iter_rows()
    ]


def _holder_names(data: RankData, waits: Waits) -> I64:
    if len(data.name) == 0:
        return waits.holder
    held: I64 = np.where(waits.holder != NONE, data.name[np.maximum(waits.holder, 0)].astype(np.int64), NONE)
    return held


def _ops(profile: Profile, data: RankData, dependencies: Dependencies, ops: I64) -> pl.DataFrame:
    """These ops, which have a launch, the one that stood still longest first."""
    before = dependencies.stream[ops]
    ready = np.where(before != NONE, data.end[np.maximum(before, 0)], data.launched_at[ops])
    stalled = np.maximum(data.start[ops] - np.maximum(ready, data.launched_at[ops]), 0)
    order = np.argsort(-stalled, kind="stable")
    ops, stalled = ops[order], stalled[order]
    holder, by_event = dependencies.latest(data.end)
    held, launched = np.maximum(holder[ops], 0), data.launched_at[ops]
    late = (holder[ops] == NONE) | (data.end[held] <= launched)
    held_ns = np.where(late, 0, data.end[held] - launched)
    wait = data.start[ops] - launched
    frame = pl.DataFrame(
        {
            "name": short_names(profile.names.gather(data.name[ops])),
            "stream": data.stream[ops].astype(np.int64),
            "range": data.text_of(data.enclosing(ops)),
            "launched_ns": launched,
            "start_ns": data.start[ops],
            "wait_ns": wait,
            "stalled_ns": stalled,
            "reason": np.select([late, by_event[ops]], ["launch", "event"], "stream"),
            "waits_for": short_names(profile.names.gather(data.name[held])),
            "waits_for_stream": data.stream[held].astype(np.int64),
            "held_ns": held_ns,
            "unknown_ns": wait - held_ns,
        }
    )
    nobody = [pl.when(pl.Series(~late)).then(c).alias(c) for c in ("waits_for", "waits_for_stream")]
    return frame.with_columns(nobody)


def _event_notes(profile: Profile, missing: int) -> list[Note]:
    if not profile.has("syncs"):
        return [noted("no-event-records", capture_with=capture_with())]
    return [noted("events-unrecorded", number=missing)] if missing else []
