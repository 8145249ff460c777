"""What a path holds, by its content: names lie (`trace.json` may be gzip, `report.db` may be SQLite)."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Literal

from stepscope.errors import BadInput
from stepscope.sources.exported import is_export_folder, looks_like_chrome_export, looks_like_perfetto_export
from stepscope.sources.ncu import looks_like_ncu_csv
from stepscope.sources.pftrace import looks_like_pftrace
from stepscope.sources.pipelinelog import looks_like_log
from stepscope.sources.snapshot import looks_like_snapshot
from stepscope.sources.steplog import looks_like_steplog

Kind = Literal[
    "nsys-sqlite",
    "nsys-parquet",
    "nsys-rep",
    "kineto",
    "pftrace",
    "perfetto-export",
    "chrome-export",
    "export-folder",
    "ncu-rep",
    "ncu-csv",
    "snapshot",
    "pipeline-log",
    "step-log",
]

KINDS = (
    "an nsys SQLite export, an nsys parquet directory, a .nsys-rep, a torch.profiler JSON(.gz) or .pftrace, "
    "a .ncu-rep, what `ncu --csv` prints, a snapshot of torch.cuda.memory._dump_snapshot, or a log of steps"
)

#: Names by which people and profilers call profiles. A file of such a name that is none is an error, never ignored.
_PROFILE_NAMES = (".sqlite", ".nsys-rep", ".qdrep", ".pt.trace.json", ".pt.trace.json.gz", ".ncu-rep", ".pftrace")

#: JSON lines are never a trace of torch.profiler.
_LOG_NAMES = (".jsonl", ".ndjson")

_HEAD = 1 << 16
_SQLITE = b"SQLite format 3\0"
_NSYS_REPORT = b"NVIDIA Tegra Profiler Report"
_NCU_REPORT = b"NVR\0"
_GZIP = b"\x1f\x8b"

#: `nsys export --type json` and `--type text`: serialized events, whose meaning is not documented.
_NSYS_EVENTS = (
    "is an nsys export of serialized events (--type json or text)",
    "export SQLite instead: `nsys export --type sqlite`, or give the .nsys-rep",
)
#: Files that are not profiles of a run, but that people have beside one: what they are, and what to do.
_OTHERS: tuple[tuple[bytes, str, str], ...] = (
    (b"PAR1", "is a single parquet file", "give the directory that `nsys export --type parquetdir` wrote"),
    (b"\x28\xb5\x2f\xfd", "is zstd-compressed", "decompress it first: `zstd -d`"),
    (b"PK\x03\x04", "is a zip archive", "unpack it first"),
    (b"BZh", "is bzip2-compressed", "decompress it first: `bunzip2`"),
    (b"\xfd7zXZ", "is xz-compressed", "decompress it first: `xz -d`"),
    (b"\x80", "is a pickle, but not an allocator snapshot", "write one with torch.cuda.memory._dump_snapshot"),
    (b'{"data":["[Unknown]"', *_NSYS_EVENTS),
    (b'data: "[Unknown]"', *_NSYS_EVENTS),
    (b"\x89HDF", "is HDF5", "export SQLite instead: `nsys export --type sqlite`"),
)
#: JSON that is not a trace, and is named as what it is: of `_OTHERS`.
_OTHER_JSON = b'{"data":["[Unknown]"'


def kind_of(path: Path) -> Kind | None:
    """The kind of profile at `path`, None where it is none; `BadInput` where it cannot be read."""
    if path.is_dir():
        return "nsys-parquet" if is_parquet_export(path) else "export-folder" if is_export_folder(path) else None
    if path.exists() and not path.is_file():  # reading a pipe would wait for whoever writes to it
        return None
    head = _head(path)
    if head.startswith(_SQLITE):
        return "nsys-sqlite"
    if head.startswith(_NSYS_REPORT):
        return "nsys-rep"
    if head.startswith(_NCU_REPORT):
        return "ncu-rep"
    if looks_like_ncu_csv(head):
        return "ncu-csv"
    if looks_like_snapshot(_inflate(head) if head.startswith(_GZIP) else head):
        return "snapshot"
    if looks_like_steplog(head):
        return "step-log"
    if path.suffix.lower() in _LOG_NAMES or looks_like_log(head):
        return "pipeline-log"
    if looks_like_pftrace(unpacked := _inflate(head) if head.startswith(_GZIP) else head):
        return "perfetto-export" if looks_like_perfetto_export(unpacked) else "pftrace"
    if looks_like_chrome_export(_text(head)):
        return "chrome-export"
    if _text(head).startswith(_OTHER_JSON):
        return None
    return "kineto" if _text(head)[:1] in (b"{", b"[") else None


def is_pipeline_log(path: Path) -> bool:
    """Whether a file of JSON lines begins as a log of items does, whatever it is called."""
    return looks_like_log(_head(path))


def is_parquet_export(path: Path) -> bool:
    """Whether the directory is one that `nsys export --type parquetdir` wrote: StringIds is in every export."""
    try:
        return (path / "StringIds.parquet").is_file()
    except OSError:  # a directory that may not be entered
        return False


def named_like_profile(path: Path) -> bool:
    return path.name.lower().endswith(_PROFILE_NAMES)


def refusal(path: Path) -> BadInput:
    """Why the file at `path` is not a profile, and what to give instead."""
    head = _head(path)
    if not head:
        return BadInput(f"{path}: the file is empty", "export or capture it again")
    for magic, what, fix in _OTHERS:
        if head.startswith(magic) or _text(head).startswith(magic):
            return BadInput(f"{path}: {what}", fix)
    if head.startswith(_GZIP) and _inflate(head).startswith(_SQLITE):
        return BadInput(f"{path}: a gzip-compressed SQLite file", "decompress it first: `gunzip`")
    if path.suffix.lower() in (".nsys-rep", ".qdrep"):
        return BadInput(f"{path}: not a whole nsys report (damaged, or cut off)", "copy or capture it again")
    if path.suffix.lower() == ".ncu-rep":
        return BadInput(f"{path}: not a whole Nsight Compute report (damaged, or cut off)", "copy or capture it again")
    return BadInput(f"{path}: not a profile", f"give {KINDS}")


def _head(path: Path) -> bytes:
    try:
        if path.stat().st_size == 0:  # also what the system makes up when it is read (/proc), which may never end
            return b""
        with path.open("rb") as file:
            return file.read(_HEAD)
    except PermissionError:
        raise BadInput(f"{path}: no permission to read it", f"chmod +r {path}, or run as its owner") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})", "check the path and the disk") from None


def _text(head: bytes) -> bytes:
    text = _inflate(head) if head.startswith(_GZIP) else head
    return text.removeprefix(b"\xef\xbb\xbf").lstrip()


def _inflate(head: bytes) -> bytes:
    """What the start of a gzip file unpacks to; nothing where it is damaged."""
    try:
        return zlib.decompressobj(wbits=31).decompress(head, _HEAD)
    except zlib.error:
        return b""
