"""Did everything arrive that was asked for: what `--with` named, and NCCL's payloads? And was it one environment?"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.capture import manifest
from stepscope.capture.wants import TORCH
from stepscope.errors import BadInput
from stepscope.model.profile import Profile
from stepscope.model.ranks import ranks_text
from stepscope.sources.nsys.sqlite import address
from stepscope.verify.check import FAILED, OK, SKIPPED, WARNING, Check

#: Tables of an nsys export that hold what was wanted; one of them with a row is enough.
_TABLES = {
    "stacks": ("CUDA_CALLCHAINS",),
    "memory": ("CUDA_GPU_MEMORY_USAGE_EVENTS",),
    "gpu-metrics": ("GPU_METRICS",),
    "cpu": ("COMPOSITE_EVENTS", "SCHED_EVENTS"),
    "osrt": ("OSRT_API",),
    "network": ("NIC_METRICS", "NET_NIC_METRIC", "NETWORK_METRICS"),
}
#: Ends of the texts of ranges that torch writes for its operators.
_RANGES = {"pytorch": "%, op_id = %", "shapes": "%, sizes = %"}
#: How the payload of a mark that nsys writes for a sample begins: without one, the sample has no stack.
_PAYLOADS = {"python-sampling": '{"Python Periodic Sampling":%'}

#: What is in the names of the counters that torch's CUPTI backend writes.
_COUNTERS = {"clocks": "SM Clock", "pm": " (%)"}


def arrived(profile: Profile, files: list[Path], wants: list[str]) -> Check:
    """Each of them in at least one file; what no file can tell is left out."""
    name = "asked for"
    if not wants:
        return Check(name, SKIPPED, "", "nothing beyond the usual", "")
    by_want = _in_exports([f for f in files if f.suffix == ".sqlite"], wants)
    traced = ",".join(s.facts.get("traced", "") for s in profile.sources)
    for want in wants:
        if options := TORCH.get(want):  # what torch.profiler says of its own
            by_want[want] = by_want.get(want, False) or all(option in traced for option in options)
    by_want |= _by_backend(profile, wants)
    if any(s.format == "kineto" for s in profile.sources) and "pytorch" in wants:
        by_want["pytorch"] = True
    missing = [want for want in wants if by_want.get(want) is False]
    unsure = [want for want in wants if want not in by_want]
    text = ", ".join(w for w in wants if by_want.get(w)) or "none of it"
    text += f"; not to be told: {', '.join(unsure)}" if unsure else ""
    if not missing:
        return Check(name, OK, "", text, ", ".join(wants))
    fix = f"{', '.join(missing)} did not arrive: see log.txt for what the profiler says, and stepscope capture doctor"
    return Check(name, FAILED, "", text, ", ".join(wants), fix)


def _by_backend(profile: Profile, wants: list[str]) -> dict[str, bool]:
    """What torch's CUPTI backend records; edges of graphs only where graphs were replayed."""
    by_want = {}
    if asked := {want: mark for want, mark in _COUNTERS.items() if want in wants}:
        # Reading counters brings their names: they come first.
        named = profile.counters["name"].unique() if profile.has("counters") else pl.Series(dtype=pl.UInt32)
        texts = " ".join(profile.names.gather(named))
        by_want = {want: mark in texts for want, mark in asked.items()}
    if "graph" in wants and (profile.has("dependencies") or _replayed(profile)):
        by_want["graph"] = profile.has("dependencies")
    return by_want


def _replayed(profile: Profile) -> bool:
    return any(frame["graph_node"].null_count() < frame.height for _, frame in profile.by_rank("ops", detail=True))


def _in_exports(files: list[Path], wants: list[str]) -> dict[str, bool]:
    by_want: dict[str, bool] = {}
    for file in files:
        with suppress(sqlite3.Error, BadInput), closing(sqlite3.connect(address(file), uri=True)) as db:
            tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
            for want in wants:
                there = any(_rows(db, t) for t in _TABLES.get(want, ()) if t in tables)
                if want in _RANGES:
                    there = "NVTX_EVENTS" in tables and _texts(db, "text", _RANGES[want])
                elif want in _PAYLOADS:
                    there = "NVTX_EVENTS" in tables and _texts(db, "jsonText", _PAYLOADS[want])
                elif want not in _TABLES:
                    continue
                by_want[want] = by_want.get(want, False) or there
    return by_want


def _rows(db: sqlite3.Connection, table: str) -> bool:
    return db.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None


def _texts(db: sqlite3.Connection, column: str, text: str) -> bool:
    """Whether any NVTX record has such a text, its own or a registered one."""
    columns = {row[1] for row in db.execute("PRAGMA table_info(NVTX_EVENTS)")}
    queries = {
        column: f"SELECT 1 FROM NVTX_EVENTS WHERE {column} LIKE ? LIMIT 1",
        f"{column}Id": f"SELECT 1 FROM NVTX_EVENTS JOIN StringIds s ON s.id = {column}Id WHERE s.value LIKE ? LIMIT 1",
    }
    return any(db.execute(query, (text,)).fetchone() for name, query in queries.items() if name in columns)


def payloads(profile: Profile) -> Check:
    """Bytes and communicators of NCCL's calls: without them, ops of ranks are matched by their order alone."""
    name = "payloads"
    if profile.ranks.height < 2 or not profile.has("comms") or profile.comms.height == 0:
        return Check(name, SKIPPED, "", "no communication calls of several ranks", "")
    named = profile.comms.height - profile.comms["communicator"].null_count()
    count = f"{named} of {profile.comms.height} calls name their communicator"
    fix = "export with --include-blobs=true, as capture run does, by an nsys of 2024 or newer" if not named else ""
    return Check(name, OK if named else WARNING, "", count, "the communicator of each", fix)


def parity(ranks: dict[str, dict[str, Any]]) -> Check:
    """Whether all ranks ran in the same environment: versions, driver, governor, variables."""
    name = "one environment"
    if len(ranks) < 2:
        return Check(name, SKIPPED, "", "fewer than two ranks say what they ran in", "")
    own = ("label", "host", "gpus")  # what every rank has of its own
    things = {int(r): manifest.flat({k: v for k, v in said.items() if k not in own}) for r, said in ranks.items()}
    keys = sorted({k for said in things.values() for k in said})
    differ = {k: {rank: said.get(k) for rank, said in things.items()} for k in keys}
    differ = {k: by for k, by in differ.items() if len(set(map(str, by.values()))) > 1}
    if not differ:
        return Check(name, OK, "", f"{len(keys)} things alike on {len(ranks)} ranks", "the same on every rank")
    key, by = next(iter(differ.items()))
    usual = max(set(map(str, by.values())), key=lambda v: sum(str(x) == v for x in by.values()))
    odd = [rank for rank, value in by.items() if str(value) != usual]
    more = f" (and {len(differ) - 1} more: {', '.join(list(differ)[1:4])})" if len(differ) > 1 else ""
    differing = f"{key} is {by[odd[0]]} on ranks {ranks_text(odd)}, {usual} elsewhere{more}"
    return Check(name, WARNING, ranks_text(odd), differing, "the same on every rank", "compare ranks with this in mind")
