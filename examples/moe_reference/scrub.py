"""Take host names, paths and the environment out of traces, in place: what is left can be given away.

    python scrub.py TRACE.sqlite ... TRACE.pt.trace.json.gz ...

nsys exports hold the command and the whole environment of the capture, in the string table too. Only the standard
library is used. Tables that only describe the machine are emptied, strings that no event refers to are blanked, and
paths are cut; events stay as they are.
"""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
import sys
from pathlib import Path

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


def scrub_sqlite(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.text_factory = lambda raw: raw.decode("utf-8", "replace")
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for table in tables.intersection(EMPTIED):
            db.execute(f'DELETE FROM "{table}"')
        if "TARGET_INFO_SYSTEM_ENV" in tables:
            rows = db.execute("SELECT rowid, name, value FROM TARGET_INFO_SYSTEM_ENV").fetchall()
            for row, name, value in rows:
                if name == "Hostname":
                    db.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = ? WHERE rowid = ?", (HOST, row))
                elif PATH.search(str(value)) or not any(k.lower() in str(name).lower() for k in KEPT_ENV):
                    db.execute("DELETE FROM TARGET_INFO_SYSTEM_ENV WHERE rowid = ?", (row,))
        _blank_strings(db, tables)
        for table, column in _texts(db, tables):
            for (text,) in db.execute(f'SELECT DISTINCT "{column}" FROM "{table}"').fetchall():
                if isinstance(text, str) and (clean := _clean(text)) != text:
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


def _clean(text: str) -> str:
    return PATH.sub(lambda m: "/…/" + m[0].rsplit("/", 1)[-1], text)


def scrub_kineto(path: Path) -> None:
    with gzip.open(path, "rt") as file:
        trace = json.load(file)
    for key in ("traceName", "hostname", "host_name"):
        trace.pop(key, None)
    text = _clean(json.dumps(trace, separators=(",", ":"), ensure_ascii=False))
    with gzip.GzipFile(path, "wb", 9, mtime=0) as out:
        out.write(text.encode())


def main() -> int:
    for name in sys.argv[1:]:
        path = Path(name)
        if path.is_file():
            (scrub_kineto if path.name.endswith(".gz") else scrub_sqlite)(path)
            print(f"scrubbed {path.name}: {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
