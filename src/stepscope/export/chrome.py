"""Chrome's JSON, for tools that read nothing else: the same tracks, lanes and arguments, an event per line.

Times are decimal microseconds from the first event on: a viewer's floating-point numbers hold them to the nanosecond.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl

from stepscope import progress
from stepscope.export.content import DEPENDENCIES, LAUNCH, MEETINGS
from stepscope.export.events import OWN, Layer
from stepscope.export.timeline import Timeline
from stepscope.model.exported import MARK

#: Lines that are made together.
_AT_ONCE = 1 << 14
#: Speed of gzip: higher levels gain little.
_LEVEL = 1


def write(timeline: Timeline, path: Path, *, compressed: bool) -> None:
    """The timeline as a file."""
    with gzip.open(path, "wb", compresslevel=_LEVEL) if compressed else path.open("wb") as file:
        file.writelines(blocks(timeline))


def blocks(timeline: Timeline) -> Iterator[bytes]:
    """The file, some lines at a time."""
    first = timeline.first
    header = replace(timeline.header, origin_ns=first).text()
    yield f'{{"displayTimeUnit":"ns",{json.dumps(MARK)}:{header},"traceEvents":[\n'.encode()
    yield ",\n".join(_metadata(timeline)).encode()
    escaped = pl.Series([json.dumps(text, ensure_ascii=False) for text in timeline.texts], dtype=pl.String)
    done = 0
    for layer in timeline.layers:
        for events in layer.chunks():
            lines = _lines(layer, events, escaped, first, _process(timeline, layer))
            yield (",\n" + ",\n".join(lines.to_list())).encode()
            done += events.height
            progress.report("writing events", done, timeline.count)
    for arrows in _arrows(timeline, first):
        yield (",\n" + ",\n".join(arrows.to_list())).encode()
    yield b"\n]}\n"


def _process(timeline: Timeline, layer: Layer) -> int:
    """A rank's number and one, as elsewhere; what is of no rank comes behind all of them."""
    most = max((t.rank for t in timeline.tracks if t.rank is not None), default=0)
    return layer.rank + 1 if layer.rank is not None else most + 2


def _metadata(timeline: Timeline) -> Iterator[str]:
    """Names and order of processes and threads: tracks have no hierarchy here, so a name has that of its parent."""
    by_uuid = {track.uuid: track for track in timeline.tracks}
    owners = {uuid: _process(timeline, layer) for layer in timeline.layers for uuid in layer.events["track"].unique()}
    for track in timeline.tracks:
        if track.rank is not None:
            yield _told("process_name", track.rank + 1, 0, "name", track.name)
            yield _told("process_sort_index", track.rank + 1, 0, "sort_index", track.rank)
    for order, (uuid, process) in enumerate(sorted(owners.items())):
        track = by_uuid[uuid]
        parent = by_uuid.get(track.parent or 0)
        name = track.name if parent is None or parent.rank is not None else f"{parent.name} {track.name}"
        yield _told("thread_name", process, uuid, "name", name)
        yield _told("thread_sort_index", process, uuid, "sort_index", order)


def _told(what: str, pid: int, tid: int, key: str, value: str | int) -> str:
    return json.dumps({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {key: value}}, ensure_ascii=False)


def _lines(layer: Layer, events: pl.DataFrame, escaped: pl.Series, first: int, process: int) -> pl.Series:
    """One event each; what an event does not have is left out."""
    counter = layer.table == "counters"
    phase = "C" if counter else "X" if layer.lasting else "i"
    arguments = [c for c in events.columns if c not in OWN and not (counter and c != "value")]
    beside = ["device"] if counter and "device" in events.columns else []
    texts = events.with_columns(escaped.gather(events["title"]).alias("title"))
    texts = texts.with_columns(escaped.gather(events[c]).alias(c) for c in arguments if c in layer.texts)
    parts = [
        pl.lit(f'{{"ph":"{phase}","cat":"{layer.table}","name":'),
        pl.col("title"),
        pl.lit(f',"pid":{process},"tid":'),
        pl.col("track"),
        pl.lit(',"ts":'),
        *_micros(pl.col("start") - first),
        *((pl.lit(',"dur":'), *_micros(pl.col("end") - pl.col("start"))) if layer.lasting else ()),
        *((pl.lit(',"s":"t"'),) if phase == "i" else ()),
        *(pl.concat_str(pl.lit(f',"{c}":'), c).fill_null("") for c in beside),
        pl.lit(',"args":{'),
        pl.concat_str([_pair(c, events[c].dtype) for c in arguments], separator=",", ignore_nulls=True)
        if arguments
        else pl.lit(""),
        pl.lit("}}"),
    ]
    return texts.select(pl.concat_str(parts).alias("line")).to_series()


def _pair(name: str, dtype: pl.DataType) -> pl.Expr:
    value = pl.col(name)
    if dtype.is_float():  # not a number has no place in JSON
        value = pl.when(value.is_finite()).then(value)
    return pl.concat_str(pl.lit(f'"{name}":'), value)


def _micros(ns: pl.Expr) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    return ns // 1000, pl.lit("."), (ns % 1000).cast(pl.String).str.zfill(3)


def _arrows(timeline: Timeline, first: int) -> Iterator[pl.Series]:
    """Arrows of a flow from its first event over the others to its last, some lines at a time.

    Ids grow from launches, which stay on their rank, to what crosses ranks: they are put in order part by part.
    """
    for rank in sorted({layer.rank for layer in timeline.layers if layer.rank is not None}):
        yield from _flows([layer for layer in timeline.layers if layer.rank == rank], (LAUNCH,), timeline, first)
    yield from _flows(timeline.layers, MEETINGS, timeline, first)
    yield from _flows(timeline.layers, DEPENDENCIES, timeline, first)


def _flows(layers: list[Layer], columns: tuple[str, ...], timeline: Timeline, first: int) -> Iterator[pl.Series]:
    """The arrows of these columns of ids between events of these layers."""
    ends = []
    for layer in layers:
        for flow in (c for c in columns if c in layer.events.columns):
            at = layer.events.select(pl.col(flow).alias("id"), "start", "track").drop_nulls("id")
            ends.append(at.with_columns(pl.lit(_process(timeline, layer)).alias("pid")))
    if not ends:
        return
    flows = pl.concat(ends).sort("id", "start", maintain_order=True).filter(pl.len().over("id") > 1)
    place, last = pl.int_range(pl.len()).over("id"), pl.len().over("id") - 1
    phase = pl.when(place == 0).then(pl.lit("s")).when(place == last).then(pl.lit("f")).otherwise(pl.lit("t"))
    placed = flows.with_columns(phase.cast(pl.Enum(["s", "f", "t"])).alias("phase"))
    parts = [
        pl.lit('{"ph":"'), pl.col("phase").cast(pl.String), pl.lit('","bp":"e","cat":"flow","name":"flow","id":'), "id",
        pl.lit(',"pid":'), "pid",
        pl.lit(',"tid":'), "track", pl.lit(',"ts":'), *_micros(pl.col("start") - first), pl.lit("}"),
    ]  # fmt: skip
    yield from (some.select(pl.concat_str(parts).alias("line")).to_series() for some in placed.iter_slices(_AT_ONCE))
