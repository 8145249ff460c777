"""What made the step as long as it is: its critical path, across ranks?

From the last op of the step backwards: through the order of streams, events that streams waited for, the launch on the
host, what the host had waited for, and at each communication to the rank that arrived last. Segments are contiguous and
sum to the step exactly. Kinds: `compute` and `copy` (an op runs), `comm` (a transfer, from the last arrival on, on the
rank that came last), `queue` (between an op and the one that it held up), `launch` (from the launch call to the op),
`host` (before it), `sync` (the host returns from waiting for the GPU).

`--what-if` replays the step on its dependencies with something changed: `hide-comm` or `hide-comm=stage4_f` (transfers
take no time), `even-rank` or `even-rank=3` (a rank as fast as the median of its peers), `host=2` (the host twice as
fast). The result is a lower bound of the step.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

import polars as pl

from stepscope.derive.comm.across import Align
from stepscope.derive.graph.critical_path import Path, walk
from stepscope.derive.graph.segments import KINDS
from stepscope.derive.rank.needs import need_calls, no_gpu_activity
from stepscope.derive.replay import replay as _replay
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import WHOLE
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.result import Result, WindowRow, names
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

ACROSS = True


class Row(TypedDict):
    order: Annotated[int, "place on the path, 0 is the beginning of the step"]
    rank: Annotated[int, "rank that the segment is on"]
    kind: Annotated[str, "compute, comm, copy, queue, launch, host or sync"]
    stream: Annotated[int | None, "stream id within the process; null on the host"]
    name: Annotated[str, "op that runs, or that was held up; of sync, the op that was waited for"]
    range: Annotated[str | None, "range that launched that op"]
    start_ns: Annotated[int, "start, on the common clock"]
    end_ns: Annotated[int, "end"]
    dur_ns: Annotated[int, "length; all segments sum to the step"]


class _Totals(TypedDict):
    n: Annotated[int, "segments"]
    total_ns: Annotated[int, "their length"]
    share_pct: Annotated[float, "share of the step"]


class _KindKey(TypedDict):
    kind: Annotated[str, "compute, comm, copy, queue, launch, host or sync"]


class ByKind(_KindKey, _Totals): ...


class _RankKey(TypedDict):
    rank: Annotated[int, "rank of the segments"]


class ByRank(_RankKey, _Totals): ...


class _RangeKey(TypedDict):
    range: Annotated[str | None, "range that launched the op"]
    kind: Annotated[str, "kind of the segments"]


class ByRange(_RangeKey, _Totals): ...


class _NameKey(TypedDict):
    name: Annotated[str, "op"]
    kind: Annotated[str, "kind of the segments"]


class ByName(_NameKey, _Totals): ...


VARIANTS = {"by=kind": ByKind, "by=rank": ByRank, "by=range": ByRange, "by=name": ByName}
_BOUND = noted("what-if-bound")
_LATE = Threshold(
    1.0,
    "% of the step",
    "ranks of sound jobs enter a step together within their clocks; what comes later than this is worth a note",
    ("tests/analyses/test_critical_path.py",),
)
By = Literal["segment", "kind", "rank", "range", "name"]


def critical_path(
    profile: Profile,
    window: WindowSpec,
    *,
    by: Annotated[By, "one row per segment, or totals"] = "segment",
    what_if: Annotated[tuple[str, ...], "hide-comm[=STAGE], even-rank[=RANK] or host=FACTOR; may be repeated"] = (),
    align: Align = "auto",
) -> Result:
    if not profile.has("ops"):
        raise no_gpu_activity()
    need_calls(profile, "what an op waited for")
    path = walk(profile, window, align)
    table = segments(path)
    total = path.end - path.begin
    summary: dict[str, Any] = {
        "step": {"label": path.label, "start_ns": path.begin, "end_ns": path.end, "step_ns": total},
        "by_kind": _by(table, "kind"),
        "by_rank": _by(table, "rank"),
    }
    if what_if:
        summary["what_if"] = _replay.what_if(profile, path, tuple(what_if))
    notes = [*path.notes, *_notes(path)]
    if what_if:
        notes.append(_BOUND)
    if by != "segment":
        table = _totals(table, VARIANTS[f"by={by}"], total)
    return Result(table, _windows(path), summary, notes, ranked_by="dur_ns" if by == "segment" else "total_ns")


def segments(path: Path) -> pl.DataFrame:
    """The rows: pieces in order of time, empty ones left out."""
    frame = path.pieces.with_columns(
        pl.Series("start_ns", path.down),
        pl.Series("end_ns", path.up),
        pl.Series(KINDS).gather(path.pieces["kind"]).alias("kind"),
    )
    frame = frame.filter(pl.col("start_ns") < pl.col("end_ns")).reverse()
    frame = frame.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("dur_ns")).with_row_index("order")
    return frame.select(names(Row)).with_columns(pl.col("order").cast(pl.Int64))


def _by(table: pl.DataFrame, key: str) -> dict[str, dict[str, Any]]:
    total = max(int(table["dur_ns"].sum()), 1)
    sums = table.group_by(key).agg(pl.col("dur_ns").sum()).sort(["dur_ns", key], descending=[True, False])
    return {str(k): {"total_ns": int(ns), "share_pct": 100.0 * ns / total} for k, ns in sums.iter_rows()}


def _totals(table: pl.DataFrame, row: type, total: int) -> pl.DataFrame:
    columns = names(row)
    keys = columns[:-3]
    totals = table.group_by(keys).agg(pl.len().cast(pl.Int64).alias("n"), pl.col("dur_ns").sum().alias("total_ns"))
    totals = totals.with_columns((100.0 * pl.col("total_ns") / max(total, 1)).alias("share_pct"))
    return totals.sort(["total_ns", *keys], descending=[True, *(False for _ in keys)]).select(columns)


def _windows(path: Path) -> list[WindowRow]:
    return [
        {
            "rank": row["rank"],
            "pid": row["pid"],
            "label": row["label"],
            "index": row["index"],
            "count": row["count"],
            "cpu_start_ns": row["cpu_start_ns"],
            "cpu_end_ns": row["cpu_end_ns"],
            "gpu_start_ns": row["begin_ns"],
            "gpu_end_ns": row["end_ns"],
            "kind": row["kind"],
        }
        for row in path.steps.iter_rows(named=True)
    ]


def _notes(path: Path) -> list[Note]:
    notes = []
    silent = path.steps.filter(~pl.col("events"))
    if guessed := int(silent["inferred"].sum()):
        notes.append(noted("waits-inferred", without=silent.height, all=path.steps.height, number=guessed))
    missing = int(path.steps["unresolved"].sum())
    if missing and not silent.height:
        notes.append(noted("events-unrecorded/path", number=missing))
    if path.pieces.height == 0:  # a step of no length
        return notes
    first = int(path.pieces["rank"][-1])
    own = path.begun.get(first, path.begin)
    if own - path.begin > _LATE.share * (path.end - path.begin):
        notes.append(noted("path-begins-late", rank=first, late=about(own - path.begin)))
    if path.label == WHOLE:
        notes.append(noted("no-step-range/path"))
    return notes
