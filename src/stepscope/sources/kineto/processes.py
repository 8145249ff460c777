"""Which process each row belongs to: one per file, or one per rank where ranks were merged into one file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from stepscope.model.devices import several
from stepscope.model.gpus import gpu_of
from stepscope.model.labels import SETUP_PATTERN, parse_setup
from stepscope.model.source import process_table
from stepscope.sources.kineto.rows import PID, RANK

_RANK_IN_NAME = re.compile(r"\brank\s*[-_:=#]?\s*([0-9]{1,9})\b", re.IGNORECASE)
_HOST_TABLES = ("calls", "host", "ranges")


@dataclass
class Processes:
    """Processes of a file in order; `rank_of` maps pids (of host and GPU rows) to ranks in merged files."""

    pids: list[int | None]
    ranks: list[int | None]
    rank_from: str | None = None
    rank_of: dict[int, int] = field(default_factory=dict)
    proc_of_pid: dict[int, int] = field(default_factory=dict)

    def assign(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The frame with `proc` in place of what told it; null where nothing did."""
        if len(self.pids) <= 1:
            proc = pl.lit(0, pl.Int32)
        elif self.rank_from is not None:
            index = {rank: proc for proc, rank in enumerate(self.ranks)}
            by_pid = pl.col(PID).replace_strict(self.rank_of, default=None, return_dtype=pl.Int64)
            proc = pl.coalesce(RANK, by_pid).replace_strict(index, default=None, return_dtype=pl.Int32)
        else:
            proc = pl.col(PID).replace_strict(self.proc_of_pid, default=None, return_dtype=pl.Int32)
        return frame.with_columns(proc.alias("proc")).drop(PID, RANK)


def find(tables: Mapping[str, pl.DataFrame], process_names: Mapping[int, str], info: Mapping[str, Any]) -> Processes:
    """The processes of a file, by the strongest evidence that it has."""
    if not tables:
        return Processes([], [])
    merged = _by_rank_argument(tables) or _by_process_name(tables, process_names)
    if merged is not None:
        return merged
    several = _by_host_pid(tables)
    if several is not None:
        return several
    rank = info.get("rank")
    known = isinstance(rank, int)
    pid = next((p[0] for t in _HOST_TABLES if (p := _pids(tables.get(t)))), None)
    return Processes([pid], [rank if known else None], "distributedInfo" if known else None)


def describe(
    found: Processes,
    tables: Mapping[str, pl.DataFrame],
    texts: list[str],
    metadata: Mapping[str, Any],
    world_sizes: Mapping[int, int],
) -> pl.DataFrame:
    """`schema.PROCESSES`: rows of the tables carry `proc` by now."""
    info = distributed(metadata)
    gpus = _gpu_names(metadata)
    parts = _parts_of_gpus(metadata)
    devices, setups = _devices(tables.get("ops")), _setups(tables.get("ranges"), texts)
    apart = _computing_on_several(tables.get("ops"))
    rows = []
    for proc, (pid, rank) in enumerate(zip(found.pids, found.ranks, strict=True)):
        device, label = devices.get(proc), setups.get(proc)
        setup = parse_setup(label) if label else None
        rows.append(
            {
                "proc": proc,
                "pid": pid,
                "host": None,
                "device": device,
                "gpu": gpus.get(device) if device in gpus else gpus.get(None),
                "gpu_id": device if device in parts else None,
                "rank": setup.rank if setup else rank,
                "rank_from": "setup label" if setup else found.rank_from,
                "setup": label,
                "world_size": size if isinstance(size := info.get("world_size"), int) else world_sizes.get(proc),
                "devices": apart.get(proc),
            }
        )
    return process_table(rows)


def distributed(metadata: Mapping[str, Any]) -> dict[str, Any]:
    info = metadata.get("distributedInfo")
    return info if isinstance(info, dict) else {}


def _by_rank_argument(tables: Mapping[str, pl.DataFrame]) -> Processes | None:
    """Merging tools that write `args.rank` into every event."""
    pairs = [f.select(PID, RANK).drop_nulls(RANK).unique() for f in tables.values()]
    seen = pl.concat(pairs).unique() if pairs else pl.DataFrame(schema={PID: pl.Int64, RANK: pl.Int64})
    ranks = sorted(seen[RANK].unique().to_list())
    if not ranks:
        return None
    # A pid that only one rank uses also tells the rank of rows without the argument.
    sole = seen.drop_nulls().filter(pl.col(PID).is_unique())
    return _ranked(tables, ranks, "args.rank", dict(sole.iter_rows()))


def _by_process_name(tables: Mapping[str, pl.DataFrame], process_names: Mapping[int, str]) -> Processes | None:
    """Merging tools that give every rank pids of its own and name them: `RANK 0 - GPU`."""
    rank_of = {pid: int(m[1]) for pid, name in process_names.items() if (m := _RANK_IN_NAME.search(name))}
    used = set().union(*(_pids(f) for f in tables.values())) if tables else set()
    rank_of = {pid: rank for pid, rank in rank_of.items() if pid in used}
    ranks = sorted(set(rank_of.values()))
    return _ranked(tables, ranks, "process name", rank_of) if len(ranks) > 1 else None


def _ranked(tables: Mapping[str, pl.DataFrame], ranks: list[int], rank_from: str, rank_of: dict[int, int]) -> Processes:
    pids: list[int | None] = []
    for rank in ranks:
        of_rank = [
            pid
            for t in _HOST_TABLES
            if (f := tables.get(t)) is not None
            for pid in _pids(
                f.filter((pl.col(RANK) == rank) | (pl.col(PID).replace_strict(rank_of, default=-1) == rank))
            )
        ]
        pids.append(of_rank[0] if of_rank else None)
    return Processes(pids, list(ranks), rank_from, rank_of)


def _by_host_pid(tables: Mapping[str, pl.DataFrame]) -> Processes | None:
    """Several processes with calls in one file: GPU rows go where their correlation ids are."""
    calls, ops = tables.get("calls"), tables.get("ops")
    pids = sorted(_pids(calls))
    if len(pids) < 2 or calls is None:
        return None
    of_host = {pid: proc for proc, pid in enumerate(pids)}
    proc_of = dict(of_host)
    if ops is not None:
        gpu = ops.select(pl.col(PID).alias("gpu"), "correlation", pl.col("start_ns").alias("gpu_start"))
        known = calls.filter(pl.col(PID).is_in(pids))  # not those of threads of no process
        joined = gpu.join(known.select(PID, "correlation", "start_ns"), on="correlation")
        delay = pl.col("gpu_start") - pl.col("start_ns")
        votes = joined.filter(delay >= 0).group_by("gpu", PID).agg(pl.len(), delay.sum().alias("delay"))
        # The last one holds: most launches, and where processes have as many, those shortly before.
        votes = votes.sort("len", "delay", PID, descending=[False, True, True])
        for gpu_pid, pid in votes.select("gpu", PID).iter_rows():
            if gpu_pid not in of_host:
                proc_of[gpu_pid] = of_host[pid]
    return Processes(list(pids), [None] * len(pids), None, proc_of_pid=proc_of)


def _pids(frame: pl.DataFrame | None) -> list[int]:
    """Process ids of a table, the most frequent first; Kineto writes 0 and -1 for threads it knows nothing of."""
    if frame is None:
        return []
    counted = frame[PID].drop_nulls().value_counts().sort("count", PID, descending=[True, False])
    return [pid for pid in counted[PID].to_list() if pid > 0]


def _devices(ops: pl.DataFrame | None) -> dict[int, int]:
    """By process: the device of most of its ops."""
    if ops is None:
        return {}
    counted = ops.drop_nulls("device").group_by("proc", "device").len()
    most = counted.sort("len", "device", descending=[True, False]).unique("proc", keep="first", maintain_order=True)
    return dict(most.select("proc", "device").iter_rows())


def _computing_on_several(ops: pl.DataFrame | None) -> dict[int, str]:
    """By process that computes on several GPUs, which."""
    if ops is None or ops["device"].n_unique() < 2:
        return {}
    return several(ops.filter(pl.col("kind") == "kernel").group_by("proc", "device").len())


def _setups(ranges: pl.DataFrame | None, texts: list[str]) -> dict[int, str]:
    """By process: the first label of the set-up."""
    if ranges is None:
        return {}
    named = pl.Series(texts, dtype=pl.String)
    labels = named.str.contains(SETUP_PATTERN).arg_true()
    own = ranges.filter(pl.col("name").is_in(labels.implode())).unique("proc", keep="first", maintain_order=True)
    return {proc: texts[name] for proc, name in own.select("proc", "name").iter_rows()}


def _gpu_names(metadata: Mapping[str, Any]) -> dict[int | None, str]:
    """Names by ordinal; under None, the name that all devices share (ROCm counts devices differently)."""
    properties = metadata.get("deviceProperties")
    if not isinstance(properties, list):
        return {}
    devices = [p for p in properties if isinstance(p, dict) and isinstance(p.get("name"), str)]
    names: dict[int | None, str] = {p["id"]: p["name"] for p in devices if isinstance(p.get("id"), int)}
    if len({p["name"] for p in devices}) == 1:
        names[None] = devices[0]["name"]
    return names


def _parts_of_gpus(metadata: Mapping[str, Any]) -> set[int]:
    """Ordinals of GPUs that other processes use too: under MPS each may see a part of the multiprocessors only.

    Elsewhere an ordinal does not say which GPU it is: with CUDA_VISIBLE_DEVICES every rank calls its own 0. A slice
    of a GPU by MIG is a GPU of its own, and is called so.
    """
    properties = metadata.get("deviceProperties")
    devices = [p for p in properties if isinstance(p, dict)] if isinstance(properties, list) else []
    return {p["id"] for p in devices if isinstance(p.get("id"), int) and _is_part(p.get("name"), p.get("numSms"))}


def _is_part(name: object, units: object) -> bool:
    if not isinstance(name, str) or not isinstance(units, int) or "MIG" in name:
        return False
    gpu = gpu_of(name)
    return gpu is not None and 2 * units <= gpu.units
