"""A torch.profiler trace as a source: read once, from front to back, when it is first asked for anything."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import polars as pl

from stepscope import progress
from stepscope.errors import BadInput
from stepscope.files import budget
from stepscope.model import schema
from stepscope.model.capturing import capture_with
from stepscope.model.columns import Part
from stepscope.model.note import noted
from stepscope.model.schema import TABLES
from stepscope.model.source import Chunk, Quality, SourceInfo, canonical, conform
from stepscope.sources.kineto import comms, processes
from stepscope.sources.kineto.bytestream import ByteStream, Stream
from stepscope.sources.kineto.chunks import CHUNK_BYTES, EventChunks
from stepscope.sources.kineto.collect import MARKS, Collector
from stepscope.sources.kineto.names import compact

#: Times beyond this (2001 in microseconds since 1970) are absolute, where the file names no base.
_EPOCH_FROM_NS = 10**18
#: Options of torch.profiler that slow the host down.
_OPTIONS = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
_VERSIONS = (("cupti_version", "CUPTI"), ("roctracer_version", "roctracer"), ("rocprofiler_version", "rocprofiler"))


#: Traces stay in memory up to this part of the budget.
_SHARE = 4
#: The one that was read last, where there is no room for all.
_last: WeakKeyDictionary[KinetoSource, _Trace] = WeakKeyDictionary()


class KinetoSource:
    """One Kineto JSON file, compressed or not; `stream` gives the JSON of a file that holds it in another form."""

    def __init__(
        self, path: Path, chunk_bytes: int = CHUNK_BYTES, stream: Callable[[Path], Stream] = ByteStream
    ) -> None:
        self.path = path
        self._chunk_bytes = chunk_bytes
        self._stream = stream
        self._kept: _Trace | None = None

    def processes(self) -> pl.DataFrame:
        return self._about[1]

    def tables(self) -> frozenset[str]:
        return self._about[2]

    def read(self, table: str, part: Part = "core") -> Chunk:
        if table not in self.tables():
            return Chunk(schema.empty(table, part))
        trace = self._trace()
        shaped = conform(trace.tables[table], table, part, self.quality)
        return Chunk(*compact(shaped, TABLES[table].name_ids(), trace.texts))

    @property
    def info(self) -> SourceInfo:
        return self._about[0]

    @property
    def quality(self) -> Quality:
        return self._about[3]

    @cached_property
    def _about(self) -> tuple[SourceInfo, pl.DataFrame, frozenset[str], Quality]:
        """What stays of the file whether its tables do or not."""
        trace = self._trace()
        return trace.info, trace.processes, frozenset(trace.tables), trace.quality

    def _trace(self) -> _Trace:
        """All that the file holds. Of thousands of files, those that there is room for stay; others are read again."""
        if self._kept is not None:
            return self._kept
        last = _last.get(self)
        if last is not None:
            return last
        trace = _Trace(self.path, self._chunk_bytes, self._stream)
        if budget.used() <= budget.total() // _SHARE:
            self._kept = trace
        else:
            _last.clear()  # its tables are asked for one after the other
            _last[self] = trace
        return trace


class _Trace:
    """Everything a file holds, in the columns of the model."""

    def __init__(self, path: Path, chunk_bytes: int, opened: Callable[[Path], Stream]) -> None:
        self.quality = Quality()
        self._world: dict[int, int] = {}
        collector = Collector()
        with opened(path) as stream, _no_garbage_collection():
            chunks = EventChunks(stream, chunk_bytes)
            for events, text in chunks:
                collector.add(events, text)
                progress.report(f"reading {path.name}", *stream.position())
        metadata = chunks.metadata
        self.tables = self._assigned(collector, metadata)
        self.texts = collector.names.texts()
        self.processes = processes.describe(self._found, self.tables, self.texts, metadata, self._world)
        if self.processes.is_empty():
            if collector.endless:
                what = f"{path}: none of {collector.endless:,} events of a GPU or a host has a duration"
                raise BadInput(what, "record it again")
            raise BadInput(f"{path}: a trace without an event of a GPU or a host", capture_with())
        self.info = SourceInfo(
            file=path.name,
            format="kineto",
            tool=_tool(metadata),
            schema=str(metadata["schemaVersion"]) if "schemaVersion" in metadata else None,
            epoch_ns=(epoch := _epoch(metadata, collector.earliest_ns)),
            recorded_ns=_recorded(self.tables, epoch),
            facts=_facts(metadata),
        )
        self._note(chunks, collector)

    def _assigned(self, collector: Collector, metadata: dict[str, Any]) -> dict[str, pl.DataFrame]:
        """The tables with `proc`, each in the order of the model."""
        raw = collector.tables()
        info = processes.distributed(metadata)
        self._found = processes.find(raw, collector.process_names, info)
        tables: dict[str, pl.DataFrame] = {}
        for name in list(raw):
            frame = self._found.assign(raw.pop(name))
            if lost := frame["proc"].null_count():
                self.quality.note(noted("rows-left-out/no-rank", number=lost, name=name))
                frame = frame.drop_nulls("proc")
            tables[name] = frame
        marks = tables.pop(MARKS, None)
        if "comms" in tables:
            calls = comms.finish(tables["comms"], marks, info.get("pg_config"), dict(enumerate(self._found.ranks)))
            self._world = comms.world_sizes(calls)
            tables["comms"] = comms.numbered(calls, collector.names)
        return {name: canonical(frame, name) for name, frame in tables.items() if frame.height}

    def _note(self, chunks: EventChunks, collector: Collector) -> None:
        if chunks.mended:
            self.quality.note(noted("json-mended"))
        if chunks.unclosed:
            self.quality.note(noted("file-cut-short/events"))
        if collector.absurd:
            self._left_out(f"{collector.absurd} events with an impossible time (negative or over a year)")
        if collector.endless:
            self._left_out(f"{collector.endless} events without a duration")
        for category, count in collector.unknown.most_common(8):
            shown = category[:80]
            self.quality.note(noted("unknown-category", number=count, category=shown))

    def _left_out(self, what: str) -> None:
        self.quality.note(noted("rows-impossible/kineto", what=what))


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Decoding makes millions of short-lived objects and no cycles: looking for those costs a tenth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _tool(metadata: dict[str, Any]) -> str | None:
    versions = [f"{name} {metadata[key]}" for key, name in _VERSIONS if key in metadata]
    return ", ".join(versions) or None


def _facts(metadata: dict[str, Any]) -> dict[str, str]:
    """CUDA, NCCL, and the profiler's options that cost time."""
    number = metadata.get("cuda_driver_version")
    options = [key for key in _OPTIONS if metadata.get(key) in (1, True)]
    facts = {
        "cuda": f"{number // 1000}.{number % 1000 // 10}" if isinstance(number, int) and number else None,
        "nccl": processes.distributed(metadata).get("nccl_version"),
        "traced": ", ".join(options) if options else None,
    }
    return {k: str(v) for k, v in facts.items() if v}


def _recorded(tables: Mapping[str, pl.DataFrame], epoch_ns: int | None) -> tuple[int, int] | None:
    """UTC of the first and last GPU op, else of what the host did."""
    frame = next((tables[t] for t in ("ops", "calls", "host", "ranges") if t in tables and tables[t].height), None)
    if frame is None or epoch_ns is None:
        return None
    first, last = frame["start_ns"].min(), frame["end_ns"].max()
    return (epoch_ns + first, epoch_ns + last) if isinstance(first, int) and isinstance(last, int) else None


def _epoch(metadata: dict[str, Any], earliest_ns: int | None) -> int | None:
    base = metadata.get("baseTimeNanoseconds")
    if isinstance(base, int) and 0 <= base < 1 << 62:
        return base
    return 0 if earliest_ns is not None and earliest_ns > _EPOCH_FROM_NS else None
