"""Files and time: split, merged, cut, inserted. Each says how many answers it compared, and which fail."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
from relation_answers import answers, differences, expected, same, sums

from stepscope import api
from stepscope.errors import StepscopeError

PARTS = ("window_ns", "compute_ns", "comm_exposed_ns", "copy_exposed_ns", "idle_ns", "comm_hidden_ns")
_GPU = tuple(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
#: Of one file: how many there are, and what the clock of each is worth.
_OF_FILES = {"info", "capture verify", "export", "clocks"}
_OF_CLOCKS = {"residual_p95_ns", "residual_p50_ns"}
_GAP = 5_000_000
#: Answers that rest on the ops of the window alone.
_OF_A_WINDOW = ("breakdown", "overlap", "exposed", "kernels", "concurrency")

#: How many answers were compared, and which were not as predicted.
Outcome = tuple[int, list[str]]


def _columns(db: sqlite3.Connection, table: str) -> set[str]:
    return {c for (c,) in db.execute(f"SELECT name FROM pragma_table_info('{table}')")}


def of_process(source: Path, path: Path, key: int) -> Path:
    """The same export with one process only."""
    path.write_bytes(source.read_bytes())
    with closing(sqlite3.connect(path)) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for column in {"globalPid", "globalTid"} & _columns(db, table):
                if table != "DIAGNOSTIC_EVENT":
                    db.execute(f'DELETE FROM "{table}" WHERE "{column}" >> 24 != ?', [key >> 24])
        db.commit()
    return path


def split(path: Path, folder: Path, before: dict[str, Any]) -> Outcome:
    """A file per process instead of one of the node, and so one of the node instead of many: every row is the same."""
    with closing(sqlite3.connect(path)) as db:
        if "globalPid" not in _columns(db, _GPU[0]):
            return 0, []
        keys = [k for (k,) in db.execute(f"SELECT DISTINCT globalPid FROM {_GPU[0]} ORDER BY 1")]
    if len(keys) < 2:
        return 0, []
    files = [of_process(path, folder / f"part{n}.sqlite", key) for n, key in enumerate(keys)]
    compared, after = _without_clocks(before), _without_clocks(answers(*files))
    return len(compared), differences(compared, after)


def _without_clocks(found: dict[str, Any]) -> dict[str, Any]:
    kept = {name: answer for name, answer in found.items() if name not in _OF_FILES}
    for answer in kept.values():
        if isinstance(answer, dict) and "summary" in answer:
            answer["summary"] = {k: v for k, v in answer["summary"].items() if k not in _OF_CLOCKS}
    return kept


def windows_add_up(path: Path) -> Outcome:
    """Parts of the capture: what they hold sums to what the whole holds."""
    profile = api.open(path, cache=False)
    found = [span for span in profile.extents().values() if span is not None] if profile.has("ops") else []
    if not found:
        return 0, []
    lo, hi = min(a for a, _ in found), max(b for _, b in found)
    cuts = sorted({lo, lo + (hi - lo) // 7, lo + (hi - lo) // 2, max(hi - 1000, lo + 1), hi})
    failed = []
    asked: dict[str, tuple[str, ...]] = {"breakdown": PARTS, "overlap": ("comm_ns",), "idle": ("gap_ns",)}
    compared = 0
    for name, columns in asked.items():
        try:
            whole, *parts = [_rows(profile, name, a, b) for a, b in ((lo, hi), *pairwise(cuts))]
        except StepscopeError:
            continue
        compared += 1
        if any(sums([whole], ["rank"], c) != sums(parts, ["rank"], c) for c in columns):
            failed.append(name)
    return compared, failed


def _rows(profile: api.Profile, name: str, start: int, end: int) -> Any:
    rows = api.analyse(profile, name, start=start, end=end).rows
    if "barrier_ns" in rows.columns:  # whether an op is one depends on what else is in the window
        rows = rows.with_columns(comm_ns=pl.col("comm_ns") + pl.col("barrier_ns"))
    return rows


def inserted(path: Path, folder: Path) -> Outcome:
    """The GPU does nothing for a while after the first step: it idles so much longer, and that is all."""
    profile = api.open(path, cache=False)
    try:
        first = api.analyse(profile, "window", step=True, index=0).rows
    except StepscopeError:
        return 0, []
    begin, end = profile.extents()[0]
    at = int(first["gpu_end_ns"].max()) + 1
    running = profile.ops.filter((profile.ops["start_ns"] < at) & (profile.ops["end_ns"] > at)).height
    if running or not begin < at < end:
        return 0, []
    changed = folder / "inserted.sqlite"
    changed.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(changed)) as db:
        tables = [t for t in _GPU if _columns(db, t)]
        for table in tables:
            for column in ("end", "start"):
                db.execute(f"UPDATE {table} SET {column} = {column} + {_GAP} WHERE start >= {at}")
        db.commit()
    later = api.open(changed, cache=False)
    was, now = _rows(profile, "breakdown", begin, end), _rows(later, "breakdown", begin, end + _GAP)
    grown = [
        (now[part] - was[part]).to_list() == [_GAP if part in ("window_ns", "idle_ns") else 0] * was.height
        for part in PARTS
    ]
    failed = [] if all(grown) else ["breakdown"]
    for name in ("kernels", "stats cuda_gpu_kern_sum"):
        failed += [] if _whole(profile, name) == _whole(later, name) else [name]
    return 3, failed


def _whole(profile: api.Profile, name: str) -> Any:
    from stepscope.agent.nsys import KINDS

    rows = (
        api.analyse(profile, name, whole=True).rows.drop("share_pct", strict=False)
        if name == "kernels"
        else KINDS["stats"](profile, name.split()[1]).rows
    )
    return expected(rows.to_dicts(), same)


def cut(path: Path, folder: Path) -> Outcome:
    """An export that is cut to a step has that step: the same rows about it."""
    profile = api.open(path, cache=False)
    try:
        steps = api.analyse(profile, "window", step=True, index=1).rows
        profile.export(folder / "step.parquet", step=True, index=1)
    except StepscopeError:
        return 0, []
    alone = api.open(folder / "step.parquet", cache=False)
    failed = set()
    for rank, start, end in steps.select("rank", "gpu_start_ns", "gpu_end_ns").iter_rows():
        window = {"rank": rank, "start": start, "end": end}
        failed |= {name for name in _OF_A_WINDOW if _told(profile, name, window) != _told(alone, name, window)}
    return len(_OF_A_WINDOW), sorted(failed)


def _told(profile: api.Profile, name: str, window: dict[str, Any]) -> Any:
    try:
        rows = api.analyse(profile, name, **window).rows
        return expected(rows.drop("next_op", strict=False).to_dicts(), same)  # what follows may be outside
    except StepscopeError as error:
        return type(error).__name__
