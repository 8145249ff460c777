"""What a stretch of a capture is made of: start-up, a checkpoint, an evaluation.

Time in which the GPU works is what it does; the rest is what the host did meanwhile. Everything sums to the stretch.
"""

from __future__ import annotations

import polars as pl

from stepscope.derive.accounting.partition import partition
from stepscope.derive.host.idle_causes import ALLOC, API, GIL, HOST, LOAD, QUEUE, SYNC, TAIL, call_causes, causes
from stepscope.derive.rank.data import COPY, RankData
from stepscope.intervals import Spans, covered, intersect, subtract, union
from stepscope.model.range_names import COMPILING

#: What the host does while the GPU idles, by cause (semantics §6).
_HOST = {
    SYNC: "waiting for the GPU",
    ALLOC: "allocating memory",
    LOAD: "loading code",
    API: "other CUDA calls",
    HOST: "other host work",
    GIL: "waiting for Python's lock",
    QUEUE: "queued work",
}
_IDLE = "idle"
#: Copies by where they go, in the order in which an instant of several counts.
_COPIES = {"HtoD": "copies to the device", "DtoH": "copies from the device"}

Contents = list[tuple[str, str | None, int]]


#: What programs do before their first steps.
_LOADS = ("allocating memory", "loading code", "compiling", "copies to the device")


def loading_ns(data: RankData, spans: Spans) -> int:
    """How much of these stretches is loading: memory, code, weights."""
    return int(sum(ns for what, _, ns in contents(data, spans) if what in _LOADS))


def named(data: RankData, host: Spans) -> str | None:
    """The range in which the program spends most of these stretches of the host, without its numbers; None for none.

    Of ranges around each other that cover as much, the outermost.
    """
    ranges = data.anchor_ranges()
    if not len(host) or not ranges.height:
        return None
    inside = covered(ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy(), host)
    whole = 2 * inside > (ranges["end_ns"] - ranges["start_ns"]).to_numpy()  # not a range around everything
    table = pl.DataFrame({"text": ranges["text"], "depth": ranges["depth"], "ns": inside}).filter(pl.Series(whole))
    table = table.with_columns(pl.col("text").str.replace_all(r"\d+", "#"))
    best = (
        table.group_by("text")
        .agg(pl.col("ns").sum(), pl.col("depth").min())
        .sort(["ns", "depth", "text"], descending=[True, False, False])
    )
    return str(best["text"][0]) if best.height and 2 * best["ns"][0] > host.length() else None


def contents(data: RankData, spans: Spans) -> Contents:
    """What the stretches consist of, the longest first: what, in which range (of the host's own time), and how long."""
    if not len(spans):
        return []
    if data.profile.has("ops"):
        whole = partition(data, int(spans.start[0]), int(spans.end[-1]))
        contents: Contents = [
            ("compute", None, intersect(whole.compute, spans).length()),
            ("communication", None, intersect(whole.comm_exposed, spans).length()),
            *_copies(data, intersect(whole.copy_exposed, spans)),
            *_idle(data, intersect(whole.idle, spans)),
        ]
    else:
        contents = _by_calls(data, spans)
    sums: dict[tuple[str, str | None], int] = {}
    for what, where, ns in contents:
        sums[what, where] = sums.get((what, where), 0) + ns
    ordered = sorted(sums.items(), key=lambda item: (-item[1], item[0][0], item[0][1] or ""))
    return [(what, where, ns) for (what, where), ns in ordered if ns]


def _copies(data: RankData, rest: Spans) -> Contents:
    contents: Contents = []
    kind = data.ops["copy_kind"].cast(pl.String)
    copying = data.role == COPY
    for name, what in _COPIES.items():
        rows = copying & (kind == name).fill_null(value=False).to_numpy()
        part = intersect(union(data.start[rows], data.end[rows]), rest)
        contents.append((what, None, part.length()))
        rest = subtract(rest, part)
    return [*contents, ("other copies and memsets", None, rest.length())]


def _idle(data: RankData, idle: Spans) -> Contents:
    if data.calls.height == 0:
        return [(_IDLE, None, idle.length())]
    pieces = causes(data, idle)
    contents: Contents = []
    last = pieces.cause == TAIL  # no op ends it: what any thread did says more
    contents += _by_calls(data, union(pieces.start[last], pieces.end[last]))
    text = data.text_of(pieces.within)
    frame = pl.DataFrame({"cause": pieces.cause, "text": text, "ns": pieces.end - pieces.start})
    frame = frame.filter(~pl.Series(last))
    host = pl.col("cause") == HOST
    compiling = host & pl.col("text").str.contains(COMPILING).fill_null(value=False)
    named = frame.with_columns(
        pl.when(compiling)
        .then(pl.lit("compiling"))
        .otherwise(pl.col("cause").replace_strict(_HOST, default=_IDLE, return_dtype=pl.String))
        .alias("what"),
        pl.when(host).then(pl.col("text")).alias("where"),
    )
    sums = named.group_by("what", "where").agg(pl.col("ns").sum())
    return [*contents, *((what, where, int(ns)) for what, where, ns in sums.iter_rows())]


def _by_calls(data: RankData, rest: Spans) -> Contents:
    """Idle time that no op ends: by the CUDA calls of any thread in it."""
    contents: Contents = []
    cause = call_causes(data)
    start, end = (data.calls[c].to_numpy() for c in ("start_ns", "end_ns"))
    for which in (LOAD, ALLOC, SYNC, API):
        rows = cause == which
        part = intersect(union(start[rows], end[rows]), rest)
        contents.append((_HOST[which], None, part.length()))
        rest = subtract(rest, part)
    return [*contents, (_HOST[HOST], None, rest.length())]
