"""Why was the GPU idle: a synchronizing call, the allocator, the host, or a queued op that had to wait?

Every gap of the window is split at the launch of the op that ended it. Before the launch the host is the reason, and
the row names the call it sat in, or its range; `gil` says that it waited for Python's lock, where nsys recorded that.
After the launch, the op was queued behind something. The causes sum to the idle time of `breakdown` to the nanosecond.

`--by thread` says what the launching thread did meanwhile: it ran (what, by samples), was blocked (in what), or had no
CPU though it could have run. It needs samples and scheduling: `capture run --with cpu,osrt`, or `python-sampling`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

import numpy as np
import polars as pl

from stepscope.analyses.idle.activity import doing
from stepscope.analyses.idle.threads import STATES, thread_of, thread_time
from stepscope.derive.accounting.named_window import about_window, sized_window
from stepscope.derive.host.idle_causes import CAUSES, Pieces, idle_causes
from stepscope.derive.rank.at_once import of_each
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.rank.graphs import graph_notes
from stepscope.derive.rank.needs import need_calls, need_ops
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import Window, Windows
from stepscope.errors import CannotAnswer
from stepscope.model.capturing import capture_with
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.result import OfRank, Result
from stepscope.model.statement import STATEMENT, most_in, percent, several, time_of
from stepscope.model.threshold import Threshold
from stepscope.model.units import about


class Row(OfRank):
    gap_start_ns: Annotated[int, "start of the stretch, GPU time"]
    gap_ns: Annotated[int, "its length"]
    cause: Annotated[
        str, "sync, alloc, load, api, host, gil, queue; tail: no op ends it; unlinked: the op has no launch record"
    ]
    range: Annotated[str | None, "range the launching thread was in; for `queue`, the range that launched the op"]
    call: Annotated[str | None, "CUDA call that covers the stretch longest; the launch for `queue`"]
    next_op: Annotated[str, "op that ended the gap"]
    doing: Annotated[
        str | None, "what else the trace says of the host meanwhile: OS call, torch op, Python function, or a sample"
    ]
    thread: Annotated[
        str | None, "what the launching thread was most of the time: running, blocked or descheduled, where recorded"
    ]


class _Time(TypedDict):
    total_ns: Annotated[int, "their length"]
    share_pct: Annotated[float, "share of the window"]


class _Cause(OfRank):
    cause: Annotated[
        str, "sync, alloc, load, api, host, gil, queue; tail: no op ends it; unlinked: the op has no launch record"
    ]


class _Range(OfRank):
    range: Annotated[str | None, "range the launching thread was in; for `queue`, the range that launched the op"]


class _Thread(OfRank):
    thread: Annotated[
        str, "running, blocked, descheduled, unknown; launched: the launch was over; tail, unlinked: as causes"
    ]
    doing: Annotated[
        str | None, "call it was in; by samples, function and module that it ran; null where nothing tells"
    ]
    samples: Annotated[
        int | None, "samples among which the time of this row and its like is shared; null where it is exact"
    ]


class _Stretches(TypedDict):
    n: Annotated[int, "stretches"]


class ByCause(_Cause, _Stretches, _Time): ...


class ByRange(_Range, _Stretches, _Time): ...


class ByThread(_Thread, _Time): ...


VARIANTS = {"by=cause": ByCause, "by=range": ByRange, "by=thread": ByThread}
#: What a sentence says of the launching thread.
_MEANWHILE = {
    "running": "runs",
    "blocked": "is blocked",
    "descheduled": "has no CPU",
    "unknown": "does what was not recorded",
}
_ENOUGH_SAMPLES = Threshold(
    100,
    "samples",
    "with fewer, the standard error of a share of a tenth is three tenths of it and more: sqrt(0.9 / 0.1 n)",
    ("tests/analyses/test_idle_threads.py",),
)
#: What a sentence says of a cause. In a call or in none: before the launch the host is what the GPU waits for.
_BECAUSE = {
    "sync": "while the host waits for the GPU in a synchronizing call",
    "alloc": "while the host allocates or frees memory",
    "load": "while the host loads code",
    "api": "because the host launches late",
    "host": "because the host launches late",
    "gil": "because the thread that launches waits for Python's lock",
    "queue": "while launched work waits for an event or its stream",
    "tail": "after the last op of all",
    "unlinked": "for reasons that were not recorded",
}


def idle(
    profile: Profile,
    window: WindowSpec,
    *,
    by: Annotated[Literal["gap", "cause", "range", "thread"], "one row per stretch, or totals"] = "gap",
) -> Result:
    need_ops(profile)
    need_calls(profile, "why the GPU was idle", "; `stepscope breakdown` shows how long it was")
    if by == "thread":
        _need_threads(profile)
    chosen = windows(profile, window)

    def of_rank(data: RankData) -> list[tuple[pl.DataFrame, pl.DataFrame]]:
        spans = (w for w in chosen.of(data.rank) if w.gpu_start_ns is not None and w.gpu_end_ns is not None)
        return [_of_window(profile, data, span, by) for span in spans]

    tables = [table for of_its in of_each(profile, ranks_of(profile), of_rank) for table in of_its]
    frames, totals = ([table[i] for table in tables] for i in range(2))
    by_cause = totals if by == "gap" else []  # hundreds of rows: their sum is what most people come for
    row_type = VARIANTS.get(f"by={by}", Row)
    table = chosen.table(row_type, pl.concat(frames) if frames else [])
    summary: dict[str, Any] = {"causes": pl.concat(by_cause).to_dicts()} if by_cause else {}
    summary[STATEMENT] = _statement(chosen, totals)
    notes = [*chosen.notes, *graph_notes(profile)]
    if by == "thread" and frames:
        summary["threads"] = _states(table).to_dicts()
        summary[STATEMENT] += _meanwhile(table)
        notes += _few_samples(table)
    return Result(table, chosen.rows(), summary, notes, ranked_by="gap_ns" if by == "gap" else "total_ns")


def _of_window(profile: Profile, data: RankData, span: Window, by: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of a window, and its totals by cause."""
    assert span.gpu_start_ns is not None and span.gpu_end_ns is not None
    pieces = idle_causes(data, span.gpu_start_ns, span.gpu_end_ns)
    frame = _pieces(data, pieces)
    total = _totals(frame, "cause", span.gpu_ns)
    if by == "gap":
        frame = _named(profile, data, pieces, frame)
        frame = frame.with_columns(doing(profile, data, pieces), thread_of(profile, data, pieces))
    elif by == "thread":
        frame = _threads(profile, data, pieces, span.gpu_ns)
    elif by == "range":
        frame = _totals(frame.with_columns(data.text_of(pieces.within).alias("range")), by, span.gpu_ns)
    else:
        frame = total
    return span.named(frame), total


def _pieces(data: RankData, pieces: Pieces) -> pl.DataFrame:
    """A row per stretch, without the texts: totals need none."""
    return pl.DataFrame(
        {
            "rank": np.full(len(pieces.start), data.rank, np.int64),
            "pid": pl.repeat(data.pid, len(pieces.start), dtype=pl.Int64, eager=True),
            "gap_start_ns": pieces.start,
            "gap_ns": pieces.end - pieces.start,
            "cause": pl.Series(CAUSES).gather(pieces.cause),
        }
    )


def _named(profile: Profile, data: RankData, pieces: Pieces, frame: pl.DataFrame) -> pl.DataFrame:
    """With the range, the call and the next op of each stretch."""
    names = profile.names
    call = np.where(pieces.call >= 0, pieces.call, 0)
    op = np.where(pieces.next_op >= 0, pieces.next_op, 0)
    call_name, op_name = (
        table["name"].gather(rows) if table.height else pl.repeat(None, len(rows), dtype=pl.UInt32, eager=True)
        for table, rows in ((data.calls, call), (data.ops, op))
    )
    return frame.with_columns(
        data.text_of(pieces.within).alias("range"),
        pl.select(pl.when(pl.Series(pieces.call >= 0)).then(names.gather(call_name))).to_series().alias("call"),
        pl.select(pl.when(pl.Series(pieces.next_op >= 0)).then(names.gather(op_name))).to_series().alias("next_op"),
    )


def _need_threads(profile: Profile) -> None:
    traced = profile.has("host") and bool(profile.host["kind"].is_in(["osrt", "mpi"]).any())
    if not (traced or profile.has("off_cpu") or profile.has("samples")):
        raise CannotAnswer(
            "the profile has no CPU samples, scheduling or OS calls, so nothing shows what the launching thread did",
            capture_with("cpu", "osrt"),
        )


def _threads(profile: Profile, data: RankData, pieces: Pieces, window_ns: int) -> pl.DataFrame:
    return (
        thread_time(profile, data, pieces)
        .group_by("state", "doing")
        .agg(pl.col("samples").sum(), pl.col("samples").is_not_null().any().alias("sampled"), pl.col("ns").sum())
        .select(
            pl.lit(data.rank, pl.Int64).alias("rank"),
            pl.lit(data.pid, pl.Int64).alias("pid"),
            pl.col("state").replace_strict(dict(enumerate(STATES)), return_dtype=pl.String).alias("thread"),
            "doing",
            pl.when("sampled").then("samples").alias("samples"),
            pl.col("ns").alias("total_ns"),
            (100.0 * pl.col("ns") / window_ns).alias("share_pct"),
        )
        .sort(["total_ns", "thread", "doing"], descending=[True, False, False], nulls_last=True)
    )


def _states(table: pl.DataFrame) -> pl.DataFrame:
    """Totals by what the thread was, whatever it did."""
    keys = ["rank", "pid", "thread"]
    sums = table.group_by(keys, maintain_order=True).agg(pl.col("samples", "total_ns", "share_pct").sum())
    return sums.sort(["rank", "total_ns"], descending=[False, True])


def _meanwhile(table: pl.DataFrame) -> str:
    """What the launching threads were most of the time, and in what."""
    mine = table.filter(pl.col("thread").is_in(list(_MEANWHILE)))
    if not mine["total_ns"].sum():
        return ""
    state, ns = mine.group_by("thread").agg(pl.col("total_ns").sum()).sort("total_ns", "thread").row(-1)
    doings = mine.filter(pl.col("thread") == state).group_by("doing").agg(pl.col("total_ns").sum()).sort("total_ns")
    what, longest = doings.row(-1)
    most = f", most of it in {what}" if what and longest > ns / 2 else ""
    return f" Before launches, the launching thread {_MEANWHILE[state]} for {about(ns)}{most}."


def _few_samples(table: pl.DataFrame) -> list[Note]:
    """Shares that rest on few samples are rough."""
    sampled = table.drop_nulls("samples")
    count, ns = int(sampled["samples"].sum()), int(sampled["total_ns"].sum())
    if not ns or count >= _ENOUGH_SAMPLES.value:
        return []
    return [noted("few-samples", ns=about(ns), samples=several(count, "sample"))]


def _totals(frame: pl.DataFrame, by: str, window_ns: int) -> pl.DataFrame:
    return (
        frame.group_by("rank", "pid", by)
        .agg(pl.len().cast(pl.Int64).alias("n"), pl.col("gap_ns").sum().alias("total_ns"))
        .with_columns((100.0 * pl.col("total_ns") / window_ns).alias("share_pct"))
        .sort(["total_ns", by], descending=[True, False])
    )


def _statement(chosen: Windows, totals: list[pl.DataFrame]) -> str:
    """How long, of what, and what most of it is."""
    spans = [w for w in chosen.spans if w.gpu_ns]
    lengths, ranks = sum(w.gpu_ns for w in spans), len({w.rank for w in spans})
    if not lengths:
        return f"Nothing runs on the GPU in {about_window(chosen.spans)}."
    sums: dict[str, int] = {}
    for cause, ns in (row for frame in totals for row in frame.select("cause", "total_ns").iter_rows()):
        sums[_BECAUSE[cause]] = sums.get(_BECAUSE[cause], 0) + ns
    total = sum(sums.values())
    gpu = "The GPU is" if ranks == 1 else "GPUs are"
    if not total:
        return f"{gpu} never idle in {sized_window(spans)}."
    most = most_in(sums)
    why = f"{most[1]}{' of it' * (most[1] == 'most')} {most[0]}" if most else f"all of it {next(iter(sums))}"
    if len(spans) == 1:
        return f"{gpu} idle for {about(total)} of {sized_window(spans)} ({percent(total, lengths)}), {why}."
    of = f"{percent(total, lengths)} of {about_window(spans)}: {time_of(total, lengths, ranks)}"
    return f"{gpu} idle for {of}, {why}."
