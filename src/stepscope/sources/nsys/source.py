"""The nsys source: one export, opened, its tables read when asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import polars as pl

from stepscope.errors import BadInput
from stepscope.model.columns import Part
from stepscope.model.schema import TABLES, empty
from stepscope.model.source import Chunk
from stepscope.sources.nsys import mapping
from stepscope.sources.nsys.comms import has_comms, read_comms
from stepscope.sources.nsys.counters import GPU_METRICS, NIC_METRICS, read_counters
from stepscope.sources.nsys.events import Export
from stepscope.sources.nsys.extras import has_extras, read_extras
from stepscope.sources.nsys.meta import note_diagnostics, source_info
from stepscope.sources.nsys.processes import find_processes
from stepscope.sources.nsys.ranges import read_ranges
from stepscope.sources.nsys.records import read_calls, read_host, read_ops
from stepscope.sources.nsys.samples import SAMPLED, SCHEDULED, read_off_cpu, read_samples
from stepscope.sources.nsys.stacks import has_python_samples, has_stacks, read_stacks
from stepscope.sources.nsys.syncs import read_syncs
from stepscope.sources.nsys.tables import Tables

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
