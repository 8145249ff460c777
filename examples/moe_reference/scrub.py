"""Take host names, paths and the environment out of traces, in place: what is left can be given away.

    python scrub.py [--thin | --light] TRACE.sqlite ... TRACE.pt.trace.json.gz ... manifest.json ...

nsys exports hold the command and the whole environment of the capture, in the string table too. Only the standard
library is used. Tables that only describe the machine are emptied, strings that no event refers to are blanked, and
paths are cut; events stay as they are. `--thin` leaves out of a torch trace what can be told from the rest, or says
nothing about the GPU: arrows, arguments that are computed from others, and operators that launch nothing. `--light`
keeps the operators, and the numbers that tie a backward pass to its forward.
"""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

#: Tables without a figure in them that describe the machine or the command.
EMPTIED = ("META_DATA_CAPTURE", "PROCESSES", "ThreadNames", "ANALYSIS_FILE", "PROFILER_FILES", "TARGET_INFO_NIC_INFO")
#: Rows of the machine's description that are kept.
KEPT_ENV = ("DriverVersion", "CudaVersion", "CUDA", "NsysVersion", "OsVersion")
PATH = re.compile(r"(?:/[\w.+-]+){2,}")
#: A list of variables: an environment.
ENVIRONMENT = re.compile(r"(?:(?:^|\s)[A-Za-z_]\w*=\S*){3}")
SETUP = re.compile(r"^\s*rank=\d+;")
#: Columns of event tables that are ids of strings.
IDS = ("nameId", "textId", "jsonTextId", "demangledName", "shortName", "mangledName", "name", "symbol", "module")
HOST = "host0"
#: Operators of which only those that launch something are kept in a thin trace.
PLAIN_OP = re.compile(r"aten::|autograd::|torch::autograd|detach")
#: Arguments that are computed from others, or that no figure needs.
DERIVED = frozenset({
    "Ev Idx", "Record function id", "Sequence number", "Fwd thread id", "warps per SM", "blocks per SM",
    "est. achieved occupancy %", "memory bandwidth (GB/s)", "queued", "context", "cbid",
})  # fmt: skip


def scrub_sqlite(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.text_factory = lambda raw: raw.decode("utf-8", "replace")
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        hosts: set[str] = set()
        for table in tables.intersection(EMPTIED):
            db.execute(f'DELETE FROM "{table}"')
        if "TARGET_INFO_SYSTEM_ENV" in tables:
            rows = db.execute("SELECT rowid, name, value FROM TARGET_INFO_SYSTEM_ENV").fetchall()
            for row, name, value in rows:
                if name == "Hostname":
                    hosts |= {value, str(value).split(".")[0]}
                    db.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = ? WHERE rowid = ?", (HOST, row))
                elif PATH.search(str(value)) or not any(k.lower() in str(name).lower() for k in KEPT_ENV):
                    db.execute("DELETE FROM TARGET_INFO_SYSTEM_ENV WHERE rowid = ?", (row,))
        _blank_strings(db, tables)
        for table, column in _texts(db, tables):
            for (text,) in db.execute(f'SELECT DISTINCT "{column}" FROM "{table}"').fetchall():
                if isinstance(text, str) and (clean := _clean(text, hosts)) != text:
                    db.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE "{column}" = ?', (clean, text))
    with sqlite3.connect(path) as db:
        db.execute("VACUUM")


def _blank_strings(db: sqlite3.Connection, tables: set[str]) -> None:
    """Keep the strings that events refer to; never one that is an environment."""
    used: set[int] = set()
    for table in tables - {"StringIds"}:
        for _, column, kind, *_ in db.execute(f'PRAGMA table_info("{table}")').fetchall():
            if column in IDS and kind.upper() == "INTEGER":
                used |= {i for (i,) in db.execute(f'SELECT DISTINCT "{column}" FROM "{table}"') if i is not None}
    if "StringIds" not in tables:
        return
    if "NVTX_EVENTS" in tables:  # Python's stacks name functions and files by their numbers
        for (payload,) in db.execute("SELECT DISTINCT jsonText FROM NVTX_EVENTS WHERE jsonText LIKE '%Frames%'"):
            used |= {int(n) for n in re.findall(r'"(?:Function|File)":(\d+)', payload)}
    for at, text in db.execute("SELECT id, value FROM StringIds").fetchall():
        if at not in used or (ENVIRONMENT.search(text or "") and not SETUP.match(text)):
            db.execute("UPDATE StringIds SET value = '' WHERE id = ?", (at,))


def _texts(db: sqlite3.Connection, tables: set[str]) -> list[tuple[str, str]]:
    """Text columns that are not payloads."""
    found = []
    for table in sorted(tables):
        for _, name, kind, *_ in db.execute(f'PRAGMA table_info("{table}")'):
            if kind.upper() == "TEXT" and name not in ("binaryData", "jsonText"):
                found.append((table, name))
    return found


def _clean(text: str, hosts: Iterable[str] = ()) -> str:
    """Paths cut, and hosts taken out of file names."""
    for host in hosts:
        text = HOST if text == host else text.replace(f".{host}.", f".{HOST}.")
    return PATH.sub(lambda m: "/…/" + m[0].rsplit("/", 1)[-1], text)


#: Of those, what tells which forward operator a backward one belongs to.
AUTOGRAD = frozenset({"Sequence number", "Fwd thread id"})


def scrub_kineto(path: Path, thin: bool, light: bool = False) -> None:
    with gzip.open(path, "rt") as file:
        trace = json.load(file)
    for key in ("traceName", "hostname", "host_name"):
        trace.pop(key, None)
    if thin or light:
        trace["traceEvents"] = _thinned(trace["traceEvents"], light)
    text = _clean(json.dumps(trace, separators=(",", ":"), ensure_ascii=False))
    with gzip.GzipFile(path, "wb", 9, mtime=0) as out:
        out.write(text.encode())


def _thinned(events: list[dict[str, Any]], light: bool) -> list[dict[str, Any]]:
    """Without what is derived, and without operators that launch nothing unless only lightly."""
    left_out = DERIVED - AUTOGRAD if light else DERIVED

    def of(event: dict[str, Any], key: str) -> Any:
        return event.get("args", {}).get(key)

    on_gpu = {of(e, "correlation") for e in events if str(e.get("cat")).startswith(("kernel", "gpu_mem"))}
    calls = [e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")]
    launching = {of(e, "External id") for e in calls if of(e, "correlation") in on_gpu}
    kept = []
    for event in events:
        plain = not light and event.get("cat") == "cpu_op" and PLAIN_OP.match(event["name"])
        if event.get("ph") in ("s", "f") or (plain and of(event, "External id") not in launching):
            continue
        if "args" in event:
            event = {**event, "args": {k: v for k, v in event["args"].items() if k not in left_out}}
        kept.append(event)
    return kept


def scrub_text(path: Path) -> None:
    path.write_text(_clean(path.read_text("utf-8")), "utf-8")


def main() -> int:
    thin, light = "--thin" in sys.argv, "--light" in sys.argv
    for path in (Path(name) for name in sys.argv[1:] if name not in ("--thin", "--light")):
        if not path.is_file():
            continue
        if path.name.endswith(".gz"):
            scrub_kineto(path, thin, light)
        elif path.suffix == ".sqlite":
            scrub_sqlite(path)
        else:
            scrub_text(path)
        print(f"scrubbed {path.name}: {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
