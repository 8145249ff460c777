"""The nsys source: one export, opened, its tables read when asked for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import polars as pl

from stepscope.errors import BadInput
from stepscope.model.columns import Part
from stepscope.model.note import noted
from stepscope.model.schema import TABLES, empty
from stepscope.model.source import Chunk, Quality, SourceInfo
from stepscope.sources.nsys import mapping
from stepscope.sources.nsys.comms import has_comms, read_comms
from stepscope.sources.nsys.events import Export
from stepscope.sources.nsys.extras import has_extras, read_extras
from stepscope.sources.nsys.processes import find_processes
from stepscope.sources.nsys.ranges import read_ranges
from stepscope.sources.nsys.records import read_calls, read_host, read_ops, read_syncs
from stepscope.sources.nsys.samples import (
    GPU_METRICS,
    NIC_METRICS,
    SAMPLED,
    SCHEDULED,
    read_counters,
    read_off_cpu,
    read_samples,
)
from stepscope.sources.nsys.stacks import has_python_samples, has_stacks, read_stacks
from stepscope.sources.nsys.tables import Tables, field, text_field

_WARNING = 2
_MAX_NOTES = 5
_LOSS = re.compile(r"\b(?:dropped|lost|discarded|not all)\b", re.IGNORECASE)
_PRIVATE = re.compile(r"(?:[A-Za-z]:\\|\\\\|/)[^\s'\",;)]*[/\\][^\s'\",;)]*")


def source_info(tables: Tables, file: str, format: str) -> SourceInfo:
    """Versions name the exporter: the capturing one is not recorded."""
    meta: dict[str, str] = {}
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        for name, value in tables.rows(table, text_field("name"), text_field("value")):
            meta.setdefault(str(name), str(value))
    epoch = _positive(tables, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
    length = _positive(tables, "ANALYSIS_DETAILS", "duration")
    return SourceInfo(
        file=file,
        format=format,
        tool=meta.get("EXPORT_PRODUCT_VERSION"),
        schema=meta.get("EXPORT_SCHEMA_VERSION"),
        epoch_ns=epoch,
        capture_ns=length,
        recorded_ns=None if epoch is None or length is None else (epoch, epoch + length),
        facts=_facts(tables),
    )


def _facts(tables: Tables) -> dict[str, str]:
    """Driver, CUDA, and how it was captured; nothing that names a machine, a user or a path."""
    system = {str(n): v for n, v in tables.rows("TARGET_INFO_SYSTEM_ENV", text_field("name"), text_field("value")) if v}
    capture = [(str(n), str(v)) for n, v in tables.rows("META_DATA_CAPTURE", text_field("name"), text_field("value"))]
    facts = {
        "driver": system.get("NvDriverVersion"),
        "cuda": _cuda_version(system.get("CudaDriverVersion")),
        "traced": ", ".join(sorted({v for n, v in capture if n == "CAPTURE_EVENT_TYPE"})) or None,
        "graphs_as": next((v.lower() for n, v in capture if n.endswith("CUDA_GRAPH_TRACE_OPTIONS:MODE")), None),
    }
    return {k: v for k, v in facts.items() if v}


def _cuda_version(code: str | None) -> str | None:
    """`13.0` of CUDA's number 13000."""
    number = int(code) if code and re.fullmatch(r"[0-9]{4,6}", code) else 0
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


def note_diagnostics(tables: Tables, quality: Quality) -> None:
    """The profiler's warnings, each once with its count, without host names and paths."""
    hosts = [
        v
        for n, v in tables.rows("TARGET_INFO_SYSTEM_ENV", text_field("name"), text_field("value"))
        if n == "Hostname" and v
    ]
    warnings: Counter[str] = Counter()
    for severity, text in tables.rows("DIAGNOSTIC_EVENT", field("severity"), text_field("text")):
        if text and ((severity or 0) >= _WARNING or _LOSS.search(text)):
            warnings[_public(text, hosts)] += 1
    losses_first = sorted(warnings.items(), key=lambda item: (not _LOSS.search(item[0]), -item[1], item[0]))
    for warning, count in losses_first[:_MAX_NOTES]:
        times = f" ({count} times)" if count > 1 else ""
        quality.note(noted("profiler-warning", times=times, warning=warning))
    if len(warnings) > _MAX_NOTES:
        quality.note(noted("profiler-warning/more", number=len(warnings) - _MAX_NOTES))


def _public(text: str, hosts: list[str]) -> str:
    text = _PRIVATE.sub("<path>", " ".join(text.split()))
    for host in hosts:
        text = re.sub(rf"\b{re.escape(host)}\b", "<host>", text)
    return text if len(text) <= 200 else text[:197] + "..."


def _positive(tables: Tables, table: str, column: str) -> int | None:
    """The first value that can be a time; any other is as good as none."""
    return next((value for (value,) in tables.rows(table, field(column)) if value and 0 < value < 1 << 62), None)


Reader = Callable[[Export, Part], Chunk]

#: Per table of the model: the exported tables of which any makes it answerable, and its reader. Of what is not a
#: matter of tables, `NsysSource.tables` knows.
_READERS: dict[str, tuple[tuple[str, ...], Reader]] = {
    "ops": (mapping.GPU_TABLES, read_ops),
    "calls": ((mapping.RUNTIME.table,), read_calls),
    "ranges": ((mapping.NVTX.table,), read_ranges),
    "comms": ((), read_comms),
    "records": ((), read_extras),
    "stacks": ((), read_stacks),
    "syncs": ((mapping.SYNC.table, mapping.RECORD.table), read_syncs),
    "counters": ((GPU_METRICS, NIC_METRICS), read_counters),
    "host": (tuple(event.table for event in mapping.HOST), read_host),
    "samples": ((SAMPLED,), read_samples),
    "off_cpu": ((SCHEDULED,), read_off_cpu),
}
#: An nsys export has at least one of these.
_KNOWN = {"StringIds", "TARGET_INFO_SYSTEM_ENV", "ANALYSIS_DETAILS", "META_DATA_EXPORT", "EXPORT_META_DATA"}


class NsysSource:
    """Implements `stepscope.model.source.Source` over any container of nsys's tables."""

    def __init__(self, tables: Tables, path: Path, format: str) -> None:
        names = tables.names()
        events = {table for needs, _ in _READERS.values() for table in needs}
        if not names & (_KNOWN | events):
            raise BadInput(f"{path}: not an nsys export", "give the output of nsys export --type=sqlite REPORT")
        self.path = path
        self.info = source_info(tables, path.name, format)
        self._export = Export(tables, capture_ns=self.info.capture_ns)
        self.quality = self._export.quality
        self._export.note_reading()
        note_diagnostics(tables, self.quality)

    def processes(self) -> pl.DataFrame:
        return self._processes

    @cached_property
    def _processes(self) -> pl.DataFrame:
        return find_processes(self._export)

    def tables(self) -> frozenset[str]:
        return self._tables

    @cached_property
    def _tables(self) -> frozenset[str]:
        there = {name for name, (needs, _) in _READERS.items() if any(map(self._export.tables.has, needs))}
        self.processes()  # domains are known by process
        there |= {"comms"} if has_comms(self._export) else set()
        there |= {"records"} if has_extras(self._export) else set()
        there |= {"stacks"} if has_stacks(self._export) else set()
        there |= {"samples"} if has_python_samples(self._export) else set()
        return frozenset(there)

    def read(self, table: str, part: Part = "core") -> Chunk:
        assert table in TABLES, table
        if table not in self.tables():
            return Chunk(empty(table, part))
        self.processes()  # rows are numbered by process
        return _READERS[table][1](self._export, part)

    def let_go(self) -> None:
        """Forget what was read, beyond what is known of the file: of one among thousands, nobody is about to ask."""
        self._export.calls = self._export.ops = None
