"""Changes of an nsys export of which it is known what they do to every answer: metamorphic relations.

A relation changes a copy of the file and says what must become of a value of an answer; whatever it says nothing of
stays as it was. `python tests/fuzz/relations.py --save` tries them on every export at hand, for docs/reliability.md.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from relation_answers import Value, answers, differences, same  # noqa: E402
from relation_windows import Outcome, cut, inserted, split, windows_add_up  # noqa: E402

RESULTS = HERE.parent / "reliability" / "results" / "relations.json"
_SHIFT = 1_234_567_890
_GPU = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_STREAMS = (
    *_GPU,
    _GRAPHS,
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
    "TARGET_INFO_CUDA_STREAM",
)
_STRINGS = ("nameId", "textId", "shortName", "demangledName", "mangledName", "stringId", "symbol", "module")
_NONE = 0xFFFF_FFFF
#: Of nsys's reports and rules.
_NSYS_INSTANTS = {"Start (ns)", "Start", "End (ns)", "End"}
_NSYS_STREAMS = {"stream", "other_stream", "Strm", "Stream ID"}


@dataclass(frozen=True)
class Relation:
    """What is changed, and what becomes of a value in a column of the answers."""

    name: str
    change: Callable[[sqlite3.Connection, random.Random], None]
    expected: Value = same
    needs: Callable[[sqlite3.Connection], bool] = field(default=lambda _: True)


def _tables(db: sqlite3.Connection) -> dict[str, list[str]]:
    names = [n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {n: [c for (c,) in db.execute(f"SELECT name FROM pragma_table_info('{n}')")] for n in names}


def _with(db: sqlite3.Connection, column: str) -> list[str]:
    return [table for table, columns in _tables(db).items() if column in columns and not table.startswith("ENUM_")]


def _instant(column: str) -> bool:
    return column.endswith(("start_ns", "end_ns")) or column in _NSYS_INSTANTS or column == "capture_ns"


def _shift(db: sqlite3.Connection, _: random.Random) -> None:
    for column in ("start", "end", "timestamp"):
        for table in _with(db, column):
            db.execute(f'UPDATE "{table}" SET "{column}" = "{column}" + {_SHIFT} WHERE "{column}" IS NOT NULL')
    for column in {"duration", "stopTime"} & set(_tables(db).get("ANALYSIS_DETAILS", ())):  # of the same clock
        db.execute(f'UPDATE ANALYSIS_DETAILS SET "{column}" = "{column}" + {_SHIFT}')
    for table in _with(db, "utcEpochNs"):
        db.execute(f'UPDATE "{table}" SET utcEpochNs = utcEpochNs - {_SHIFT}')


def _permute(db: sqlite3.Connection, r: random.Random) -> None:
    for table in (*_GPU, "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds"):
        if table in _tables(db):
            rows = db.execute(f'SELECT * FROM "{table}"').fetchall()
            r.shuffle(rows)
            db.execute(f'DELETE FROM "{table}"')
            if rows:
                db.executemany(f'INSERT INTO "{table}" VALUES ({",".join("?" * len(rows[0]))})', rows)


def _strings(db: sqlite3.Connection, _: random.Random) -> None:
    for column in _STRINGS:
        for table in _with(db, column):
            db.execute(f'UPDATE "{table}" SET "{column}" = "{column}" * 3 + 100000 WHERE "{column}" IS NOT NULL')
    db.execute("UPDATE StringIds SET id = -id - 1")
    db.execute("UPDATE StringIds SET id = (-id - 1) * 3 + 100000")


def _streams(db: sqlite3.Connection, _: random.Random) -> None:
    for table in (t for t in _STREAMS if t in _tables(db)):
        db.execute(f'UPDATE "{table}" SET streamId = streamId + 1000 WHERE streamId NOT IN (0, {_NONE}, {2**64 - 1})')


def _streams_expected(column: str, value: Any) -> Any:
    return value + 1000 if column in _NSYS_STREAMS and isinstance(value, int) and value > 0 else value


def _pids(db: sqlite3.Connection, _: random.Random) -> None:
    for column in ("globalPid", "globalTid", "endGlobalTid"):
        for table in _with(db, column):
            db.execute(f'UPDATE "{table}" SET "{column}" = "{column}" + (1000 << 24) WHERE "{column}" > 0')
    for column in ("pid", "processId"):
        for table in _with(db, column):
            db.execute(f'UPDATE "{table}" SET "{column}" = "{column}" + 1000 WHERE "{column}" IS NOT NULL')


def _pids_expected(column: str, value: Any) -> Any:
    return value + 1000 if column in ("pid", "PID", "Pid") and isinstance(value, int) else value


def _correlations(db: sqlite3.Connection, _: random.Random) -> None:
    for table in _with(db, "correlationId"):
        db.execute(f'UPDATE "{table}" SET correlationId = correlationId * 7 + 13 WHERE correlationId > 0')


def _idle_process(db: sqlite3.Connection, _: random.Random) -> None:
    """A process that pushes ranges and calls the system, and has no GPU."""
    tables = _tables(db)
    if "PROCESSES" in tables:
        key = db.execute("SELECT globalPid FROM PROCESSES LIMIT 1").fetchone()
        if key:
            other = (key[0] >> 48 << 48) | 999_999 % (1 << 24) << 24
            values = {"globalPid": other, "pid": 999_999 % (1 << 24), "name": "bystander"}
            shared = {c: v for c, v in values.items() if c in tables["PROCESSES"]}
            marks = ",".join("?" * len(shared))
            db.execute(f"INSERT INTO PROCESSES ({','.join(shared)}) VALUES ({marks})", list(shared.values()))
    if "NVTX_EVENTS" in tables and (
        row := db.execute("SELECT * FROM NVTX_EVENTS WHERE end > start LIMIT 1").fetchone()
    ):
        values = dict(zip(tables["NVTX_EVENTS"], row, strict=True))
        values["globalTid"] = (values["globalTid"] >> 48 << 48) | (999_999 % (1 << 24)) << 24 | 5
        values |= {"text": "bystander", "textId": None, "jsonText": None, "binaryData": None}
        values = {c: v for c, v in values.items() if c in tables["NVTX_EVENTS"]}
        marks = ",".join("?" * len(values))
        columns = ",".join(f'"{c}"' for c in values)
        db.execute(f"INSERT INTO NVTX_EVENTS ({columns}) VALUES ({marks})", list(values.values()))


def _rename(db: sqlite3.Connection, _: random.Random) -> None:
    """The host, and the names of threads and processes: of nothing that is classified by its name."""
    tables = _tables(db)
    if "TARGET_INFO_SYSTEM_ENV" in tables:
        db.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = value || '-elsewhere' WHERE name = 'Hostname'")
    if "PROCESSES" in tables:
        db.execute("UPDATE PROCESSES SET name = 'renamed'")


def _has_host(db: sqlite3.Connection) -> bool:
    """Else the file's name stands for it."""
    if "TARGET_INFO_SYSTEM_ENV" not in _tables(db):
        return False
    return bool(db.execute("SELECT 1 FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname' AND value != ''").fetchone())


def _rename_expected(column: str, value: Any) -> Any:
    return f"{value}-elsewhere" if column == "host" and value is not None else value


RELATIONS = (
    Relation("shift all times", _shift, lambda c, v: v + _SHIFT if _instant(c) and isinstance(v, int) else v),
    Relation("permute rows", _permute),
    Relation("renumber strings", _strings),
    Relation("renumber streams", _streams, _streams_expected),
    Relation("renumber pids", _pids, _pids_expected),
    Relation("renumber correlation ids", _correlations),
    Relation("add a process without a GPU", _idle_process),
    Relation("rename host and processes", _rename, _rename_expected, needs=_has_host),
)


def changed(relation: Relation, source: Path, folder: Path) -> Path:
    """A changed copy, under the same name."""
    target = folder / relation.name.replace(" ", "_") / source.name
    target.parent.mkdir()
    shutil.copy(source, target)
    with closing(sqlite3.connect(target)) as db:
        relation.change(db, random.Random(0))
        db.commit()
    return target


def violations(relation: Relation, before: dict[str, Any], path: Path) -> list[str]:
    """Commands whose answer is not what the relation predicts."""
    return differences(before, answers(path), relation.expected)


def _of_files_and_time(path: Path, folder: Path, before: dict[str, Any]) -> Iterator[tuple[str, Outcome]]:
    yield "split into a file per process, and merge", split(path, folder, before)
    yield "insert time in which the GPU idles", inserted(path, folder)
    yield "cut to a step", cut(path, folder)
    yield "windows add up", windows_add_up(path)


def _save(ran: Counter[str], wrong: Counter[str], traces: int, seconds: float) -> None:
    table = {name: {"answers": count, "violations": wrong[name]} for name, count in ran.items()}
    content = {"suite": "relations", "traces": traces, "minutes": round(seconds / 60, 1), "relations": table}
    RESULTS.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def main() -> int:
    from good_traces import packed, shared, unpacked

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--most-mb", type=float, default=1.0, help="of packed and unpacked exports")
    given = parser.parse_args()
    ran, wrong, traces = Counter[str](), Counter[str](), 0
    began = time.monotonic()
    for trace in sorted([*packed(), *shared()], key=lambda t: t.stat().st_size):
        if ".sqlite" not in trace.name or trace.stat().st_size > given.most_mb * 2**20 or trace.name.endswith(".gz"):
            continue
        with tempfile.TemporaryDirectory(prefix="stepscope-relations-") as folder:
            (path,) = unpacked(trace, Path(folder))
            if path.stat().st_size > given.most_mb * 4 * 2**20:
                continue
            before = answers(path)
            traces += 1
            with closing(sqlite3.connect(path)) as db:
                holding = [relation for relation in RELATIONS if relation.needs(db)]
            outcomes = [
                (relation.name, (len(before), violations(relation, before, changed(relation, path, Path(folder)))))
                for relation in holding
            ]
            for name, (count, failed) in [*outcomes, *_of_files_and_time(path, Path(folder), before)]:
                ran[name] += count
                wrong[name] += len(failed)
                if failed:
                    print(f"{trace.name}: {name}: {', '.join(failed)}", flush=True)
            print(f"{trace.name}: {time.monotonic() - began:.0f} s", flush=True)
            if given.save:  # so far: it may take hours
                _save(ran, wrong, traces, time.monotonic() - began)
    for name, count in ran.items():
        print(f"{name:30} {count:6} answers, {wrong[name]} violations")
    return 1 if wrong.total() else 0


if __name__ == "__main__":
    sys.exit(main())
