"""What an export says about itself: versions, clocks, and the profiler's own warnings."""

from __future__ import annotations

import re
from collections import Counter

from stepscope.model.note import noted
from stepscope.model.source import Quality, SourceInfo
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
