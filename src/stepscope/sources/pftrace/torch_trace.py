"""torch.profiler's own Perfetto traces (torch 2.15, with its CUPTI backend): the same events as in its JSON.

The host's events are slices with torch's arguments. What the GPU did are "render stages" in Perfetto's words, each with
its length, and its arguments as texts; what was sampled are GPU counters. All of it becomes the JSON that torch would
have written, and the reader of that takes it from there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from stepscope.errors import BadInput
from stepscope.intervals.arrays import I64
from stepscope.sources.kineto.bytestream import MemoryStream
from stepscope.sources.kineto.source import KinetoSource
from stepscope.sources.pftrace.annotations import members, objects, quoted, texts_at
from stepscope.sources.pftrace.trace import (
    CATEGORIES,
    GPU_COUNTERS,
    GPU_SPECIFICATIONS,
    KERNEL_ARGUMENTS,
    NAMES,
    Events,
    Trace,
    read,
    slices,
    whole,
)
from stepscope.sources.pftrace.waits import waits_of
from stepscope.sources.pftrace.wire import Fields, fields

#: What torch calls the stages, and Kineto's category for each. Nodes of graphs that do no work are none.
_STAGES = {"Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset", "Annotation": "gpu_user_annotation"}
#: Arguments of stages by the names that Kineto has for them; those that are numbers are written as texts.
_RENAMED = {"device id": "device", "context id": "context", "stream id": "stream"}
_WHOLE = (
    "device", "context", "stream", "correlation", "bytes", "graph node id", "In msg nelems",
    "Out msg nelems", "Group size", "Seq", "Rank", "Src Rank", "Dst Rank", "Global rank start", "Global rank stride",
)  # fmt: skip
_LAUNCH_ARGUMENTS = {"registers_per_thread": "registers per thread", "shared_mem_dynamic": "shared memory"}
#: Descriptions of counters are numbered from 1, one for each GPU.
_MOST_DESCRIBED = 4096
_NOT_TORCH = (
    "a Perfetto trace that is neither torch.profiler's nor an export of stepscope",
    "give a .pftrace that torch (2.15 or newer) or `stepscope export` wrote",
)


def torch_source(path: Path) -> KinetoSource:
    return KinetoSource(path, stream=lambda path: MemoryStream(path, as_json(path)))


def as_json(path: Path) -> bytes:
    """The trace as torch's JSON."""
    given: list[pl.DataFrame] = []

    def visit(trace: Trace, packet: Fields) -> None:
        names, values = members(trace, packet.start, packet.end)
        given.append(pl.DataFrame({"of": packet.of, "name": names, "value": values}))

    trace = read(path, visit)
    assert trace.events is not None and trace.stages is not None
    base = trace.begins
    with whole(path):
        lines = pl.concat([_host(trace, pl.concat(given), base), _gpu(trace, base), _counters(trace, base)])
    if not lines.len():
        raise BadInput(f"{trace.path}: {_NOT_TORCH[0]}", _NOT_TORCH[1])
    text = ",\n".join(lines.to_list())
    return f'{{"schemaVersion": 1, "baseTimeNanoseconds": {base}, "traceEvents": [\n{text}\n]}}'.encode()


def _host(trace: Trace, given: pl.DataFrame, base: int) -> pl.Series:
    events = trace.events
    assert events is not None
    begin, end = slices(events)
    order = np.argsort(begin)
    begin, end = begin[order], end[order]
    row = np.full(len(events.time), -1, np.int64)
    row[begin] = np.arange(len(begin))
    at = row[given["of"].to_numpy()]
    given, at = given.filter(at >= 0), at[at >= 0]
    arguments = objects(at, given["name"], given["value"], len(begin))
    synchronizes = np.zeros(len(begin), dtype=bool)
    synchronizes[at[(given["name"] == '"cuda_sync_kind"').to_numpy()]] = True
    pid, tid = _owners(trace, events, begin)
    category = quoted(pl.Series([trace.text(CATEGORIES, c) for c in events.category[begin].tolist()], dtype=pl.String))
    # Torch gives no category to waits and to the profiler's own work.
    unnamed = pl.Series(np.where(synchronizes, '"cuda_sync"', '"overhead"'))
    category = pl.select(pl.when(category == '""').then(unnamed).otherwise(category)).to_series()
    return _lines(
        category,
        quoted(pl.Series([trace.text(NAMES, n) for n in events.name[begin].tolist()], dtype=pl.String)),
        (pid, tid),
        (events.time[begin] - base, events.time[end] - events.time[begin]),
        arguments,
    )


def _owners(trace: Trace, events: Events, rows: I64) -> tuple[I64, I64]:
    """Process and thread of the tracks of these events."""
    tracks, of = np.unique(events.track[rows], return_inverse=True)
    tracks_of = [trace.tracks.get(t) for t in tracks.tolist()]
    of = of.reshape(-1)
    pid = np.array([t.pid or 0 if t else 0 for t in tracks_of], np.int64)[of]
    tid = np.array([t.tid or 0 if t else 0 for t in tracks_of], np.int64)[of]
    return pid, tid


def _gpu(trace: Trace, base: int) -> pl.Series:
    assert trace.stages is not None
    time, start, end = trace.stages
    message = fields(trace.buffer, start, end)
    count = len(time)
    stage = message.last(14, count, 0)
    stages = {n: _STAGES[t] for n, t in trace.texts.get(GPU_SPECIFICATIONS, {}).items() if t in _STAGES}
    kind = pl.Series([stages.get(s) for s in stage.tolist()], dtype=pl.String)
    title = pl.Series([trace.text(NAMES, n) for n in message.last(20, count, 0).tolist()], dtype=pl.String)
    plain = pl.Series([trace.text(GPU_SPECIFICATIONS, s) for s in stage.tolist()], dtype=pl.String)
    title = pl.select(pl.when(title == "").then(plain).otherwise(title)).to_series()
    extra = _extra(trace, message.numbered(6))
    parts = pl.concat([extra, _launches(trace, message.numbered(21)), waits_of(message, kind.is_not_null().to_numpy())])
    arguments = objects(parts["of"].to_numpy(), parts["name"], parts["value"], count)
    stream = np.zeros(count, np.int64)
    streams = extra.filter(pl.col("name") == '"stream"')
    stream[streams["of"].to_numpy()] = streams["value"].cast(pl.Int64, strict=False).fill_null(0).to_numpy()
    lines = _lines(
        quoted(kind.fill_null("")),
        quoted(title),
        (message.last(11, count, 0), stream),
        (time - base, message.last(2, count, 0)),
        arguments,
    )
    return lines.filter(kind.is_not_null())


def _extra(trace: Trace, packet: Fields) -> pl.DataFrame:
    """The texts of stages, as JSON."""
    parts = fields(trace.buffer, packet.start, packet.end)
    count = len(packet.of)
    texts = []
    for number in (1, 2):
        mine = parts.numbered(number)
        at = np.full(count, len(mine.of), np.int64)
        at[mine.of] = np.arange(len(mine.of))
        texts.append(pl.concat([texts_at(trace, mine.start, mine.end), pl.Series([""], dtype=pl.String)]).gather(at))
    name = texts[0].replace(_RENAMED)
    whole = name.is_in(list(_WHOLE)) & texts[1].str.contains(r"^-?[0-9]+$")
    value = pl.select(pl.when(whole).then(texts[1]).otherwise(quoted(texts[1]))).to_series()
    return pl.DataFrame({"of": packet.of, "name": quoted(name), "value": value})


def _launches(trace: Trace, packet: Fields) -> pl.DataFrame:
    """Sizes of kernels' grids and blocks, registers and shared memory."""
    parts = fields(trace.buffer, packet.start, packet.end)
    frames = [pl.DataFrame(schema={"of": pl.Int64, "name": pl.String, "value": pl.String})]
    for number, name in ((1, "grid"), (2, "block")):
        mine = parts.numbered(number)
        sizes = fields(trace.buffer, mine.start, mine.end)
        axes = [pl.Series(sizes.last(axis, len(mine.of), 1)).cast(pl.String) for axis in (1, 2, 3)]
        text = pl.select("[" + pl.concat_str(axes, separator=", ") + "]").to_series() if len(mine.of) else axes[0]
        names = pl.Series([f'"{name}"'] * len(mine.of), dtype=pl.String)
        frames.append(pl.DataFrame({"of": packet.of[mine.of], "name": names, "value": text}))
    given = parts.numbered(3)
    inner = fields(trace.buffer, given.start, given.end)
    argument = inner.last(1, len(given.of), 0)
    value = pl.Series(np.maximum(inner.last(4, len(given.of), 0), inner.last(3, len(given.of), 0))).cast(pl.String)
    for number, called in trace.texts.get(KERNEL_ARGUMENTS, {}).items():
        of = np.flatnonzero(argument == number)
        if called in _LAUNCH_ARGUMENTS and len(of):
            names = pl.Series([f'"{_LAUNCH_ARGUMENTS[called]}"'] * len(of), dtype=pl.String)
            frames.append(pl.DataFrame({"of": packet.of[given.of[of]], "name": names, "value": value.gather(of)}))
    return pl.concat(frames)


def _counters(trace: Trace, base: int) -> pl.Series:
    """Sampled counters: power, clocks, and what the performance monitors count."""
    assert trace.samples is not None
    time, start, end = trace.samples
    parts = fields(trace.buffer, start, end)
    device = np.maximum(parts.last(3, len(time), -1), _described_gpu(trace, parts.last(4, len(time), 0)))
    given = parts.numbered(2)
    one = fields(trace.buffer, given.start, given.end)
    count = len(given.of)
    value = one.last(3, count, 0).view(np.float64)
    whole = one.numbered(2)
    value[whole.of] = whole.value.view(np.int64)
    names = _counter_names(trace)
    title = pl.Series([names.get(n, "") for n in one.last(1, count, 0).tolist()], dtype=pl.String)
    at = pl.Series(time[given.of] - base)
    frame = pl.DataFrame({"name": quoted(title), "at": at, "value": value, "device": device[given.of]})
    text = pl.concat_str(
        [
            pl.lit('{"ph": "C", "name": '), "name", pl.lit(', "pid": '), "device", pl.lit(', "ts": '), *_micros("at"),
            pl.lit(', "args": {"value": '), "value", pl.lit(', "device": '), "device", pl.lit("}}"),
        ]
    )  # fmt: skip
    return frame.filter(pl.col("value").is_finite()).select(text.alias("line")).to_series()


def _described_gpu(trace: Trace, described: I64) -> I64:
    """The GPU of samples that name a description in place of one; 0 where nothing says."""
    start, end = trace.specifications.get(GPU_COUNTERS, (np.empty(0, np.int64), np.empty(0, np.int64)))
    one = fields(trace.buffer, start, end)
    gpus = np.zeros(_MOST_DESCRIBED, np.int64)
    number = one.last(1, len(start), 0)
    known = (number >= 0) & (number < len(gpus))
    gpus[number[known]] = one.last(3, len(start), 0)[known]
    return gpus[np.where((described >= 0) & (described < len(gpus)), described, 0)]


def _counter_names(trace: Trace) -> dict[int, str]:
    start, end = trace.specifications.get(GPU_COUNTERS, (np.empty(0, np.int64), np.empty(0, np.int64)))
    described = fields(trace.buffer, start, end).numbered(2)
    specs = fields(trace.buffer, described.start, described.end).numbered(1)
    each = fields(trace.buffer, specs.start, specs.end)
    texts = each.numbered(2)
    ids = each.last(1, len(specs.of), 0)
    return dict(zip(ids[texts.of].tolist(), texts_at(trace, texts.start, texts.end).to_list(), strict=True))


def _lines(
    category: pl.Series, name: pl.Series, owner: tuple[I64, I64], time: tuple[I64, I64], args: pl.Series
) -> pl.Series:
    """Complete events, a line each; texts are JSON already."""
    frame = pl.DataFrame(
        {"cat": category, "name": name, "pid": owner[0], "tid": owner[1], "ts": time[0], "dur": time[1], "args": args}
    )
    return frame.select(
        pl.concat_str(
            [
                pl.lit('{"ph": "X", "cat": '), "cat", pl.lit(', "name": '), "name", pl.lit(', "pid": '), "pid",
                pl.lit(', "tid": '), "tid", pl.lit(', "ts": '), *_micros("ts"), pl.lit(', "dur": '), *_micros("dur"),
                pl.lit(', "args": '), "args", pl.lit("}"),
            ]
        ).alias("line")
    ).to_series()  # fmt: skip


def _micros(column: str) -> list[pl.Expr]:
    """Nanoseconds as decimal microseconds."""
    return [pl.col(column) // 1000, pl.lit("."), (pl.col(column) % 1000).cast(pl.String).str.zfill(3)]
