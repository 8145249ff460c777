"""What an export says about itself: versions, clocks, and the profiler's own warnings."""

from __future__ import annotations

import re
from collections import Counter

from stepscope.model.note import Note
from stepscope.model.source import Quality, SourceInfo
from stepscope.sources.nsys.tables import Tables

_WARNING = 2
_MAX_NOTES = 5
_LOSS = re.compile(r"\b(?:dropped|lost|discarded|not all)\b", re.IGNORECASE)
_PRIVATE = re.compile(r"(?:[A-Za-z]:\\|\\\\|/)[^\s'\",;)]*[/\\][^\s'\",;)]*")


def source_info(tables: Tables, file: str, format: str) -> SourceInfo:
    """Versions name the exporter: the capturing one is not recorded."""
    meta: dict[str, str] = {}
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        for name, value in tables.rows(table, "name", "value"):
            meta.setdefault(str(name), str(value))
    return SourceInfo(
        file=file,
        format=format,
        tool=meta.get("EXPORT_PRODUCT_VERSION"),
        schema=meta.get("EXPORT_SCHEMA_VERSION"),
        epoch_ns=_first(tables, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs"),
        capture_ns=_first(tables, "ANALYSIS_DETAILS", "duration"),
        facts=_facts(tables),
    )


def _facts(tables: Tables) -> dict[str, str]:
    """Driver, CUDA, and how it was captured; nothing that names a machine, a user or a path."""
    system = {str(n): str(v) for n, v in tables.rows("TARGET_INFO_SYSTEM_ENV", "name", "value") if v}
    capture = [(str(n), str(v)) for n, v in tables.rows("META_DATA_CAPTURE", "name", "value")]
    found = {
        "driver": system.get("NvDriverVersion"),
        "cuda": _cuda_version(system.get("CudaDriverVersion")),
        "traced": ", ".join(sorted({v for n, v in capture if n == "CAPTURE_EVENT_TYPE"})) or None,
        "graphs_as": next((v.lower() for n, v in capture if n.endswith("CUDA_GRAPH_TRACE_OPTIONS:MODE")), None),
    }
    return {k: v for k, v in found.items() if v}


def _cuda_version(code: object) -> str | None:
    """`13.0` of CUDA's number 13000."""
    number = int(str(code)) if str(code).isdigit() else 0
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


def note_diagnostics(tables: Tables, quality: Quality) -> None:
    """The profiler's warnings, each once with its count, without host names and paths."""
    hosts = [str(v) for n, v in tables.rows("TARGET_INFO_SYSTEM_ENV", "name", "value") if n == "Hostname" and v]
    found: Counter[str] = Counter()
    for severity, text in tables.rows("DIAGNOSTIC_EVENT", "severity", "text"):
        if text and ((isinstance(severity, int) and severity >= _WARNING) or _LOSS.search(str(text))):
            found[_public(str(text), hosts)] += 1
    losses_first = sorted(found.items(), key=lambda item: (not _LOSS.search(item[0]), -item[1]))
    for text, count in losses_first[:_MAX_NOTES]:
        times = f" ({count} times)" if count > 1 else ""
        quality.note(
            Note("profiler-warning", f"the profiler warned{times}: {text}", severity="warning", origin="recording")
        )
    if len(found) > _MAX_NOTES:
        quality.note(
            Note(
                "profiler-warning",
                f"the profiler gave {len(found) - _MAX_NOTES} more kinds of warning",
                severity="warning",
                origin="recording",
            )
        )


def _public(text: str, hosts: list[str]) -> str:
    text = _PRIVATE.sub("<path>", " ".join(text.split()))
    for host in hosts:
        text = re.sub(rf"\b{re.escape(host)}\b", "<host>", text)
    return text if len(text) <= 200 else text[:197] + "..."


def _first(tables: Tables, table: str, column: str) -> int | None:
    values = [value for (value,) in tables.rows(table, column) if isinstance(value, int)]
    return values[0] if values else None
