"""From the records of the ranks to the columns of a `SimTrace`, each rank on the clock of its node."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.simulate.engine.rank import RankSim
from stepscope.simulate.job.kernels import STREAM_IDS
from stepscope.simulate.job.mesh import autograd_tid
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.programs.execute import Job
from stepscope.simulate.trace.trace import I32, I64, SimCalls, SimEvents, SimOps, SimRanges, SimRank, SimSyncs, SimTrace

#: Ids that each device of a process has to itself.
_IDS_OF_A_DEVICE = 50_000_000
#: UTC of t=0 on the true clock (2027-01-01).
EPOCH_NS = 1_798_761_600_000_000_000
_STREAM = np.array([*STREAM_IDS, -1], dtype=np.int32)  # slot -1: none


def clock(s: Scenario, node: int) -> tuple[int, float]:
    """Offset (ns) and drift (ppm) of a node's clock against the true one."""
    mine = [f.params for f in s.planted if f.name == "clock" and f.params["node"] == node]
    return round(1000 * sum(p["offset_us"] for p in mine)), sum(p["drift_ppm"] for p in mine)


def local(times: I64, drift_ppm: float) -> I64:
    """True times on a drifting clock, both counted from the start of the capture. The offset is in the epoch."""
    parts_per_billion = round(drift_ppm * 1000)
    return times + times * parts_per_billion // 1_000_000_000 if parts_per_billion else times


def trace(job: Job, nodes: Iterable[int] | None = None) -> SimTrace:
    """The trace of the given nodes (default: all)."""
    s = job.scenario
    wanted = set(range(s.nodes) if nodes is None else nodes)
    ranks = [r for r in job.mesh.ranks if r.node in wanted]
    parts = [_rank(job, r) for r in ranks]
    for r, tables in zip(ranks, parts, strict=True):
        _number(tables, r.rank % s.gpus_per_process * _IDS_OF_A_DEVICE)
    return SimTrace(
        names=job.names,
        ranks=ranks,
        groups=job.mesh.groups,
        ops=_join(SimOps, [p[0] for p in parts]),
        calls=_join(SimCalls, [p[1] for p in parts]),
        ranges=_join(SimRanges, [p[2] for p in parts]),
        syncs=_join(SimSyncs, [p[3] for p in parts]),
        events=_join(SimEvents, [p[4] for p in parts]),
        epoch_ns=[EPOCH_NS + clock(s, node)[0] for node in range(s.nodes)],
        scenario=s.as_dict(),
    )


def _number(tables: _Parts, first: int) -> None:
    """Correlation ids and events of one device of a process: they are unique within the process."""
    ops, calls, _, syncs, events = tables
    if first == 0:
        return
    for table in (ops, calls, syncs, events):
        table["correlation"] = table["correlation"] + first
    for table in (syncs, events):
        table["event"] = np.where(table["event"] >= 0, table["event"] + first, table["event"]).astype(np.int32)


def by_start(sim: RankSim) -> npt.NDArray[np.intp]:
    """Ops of a rank in the order of the trace: by start, then by launch."""
    return np.argsort(ints(sim.op_start), kind="stable")


def ints(column: array[int]) -> I64:
    """A time column as an array."""
    return np.frombuffer(column, dtype=np.int64) if len(column) else np.empty(0, np.int64)


def small(column: array[int]) -> I32:
    """An index column as an array."""
    return np.frombuffer(column, dtype=np.int32) if len(column) else np.empty(0, np.int32)


def bytes_of(column: bytearray) -> I32:
    """A column of small numbers as an array."""
    return np.frombuffer(column, dtype=np.uint8).astype(np.int32) if column else np.empty(0, np.int32)


def table(rows: Sequence[tuple[int, ...]], width: int) -> I64:
    """Rows of numbers as columns."""
    return np.array(rows, dtype=np.int64).reshape(-1, width).T


_Parts = tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]


def _rank(job: Job, rank: SimRank) -> _Parts:
    sim = job.sims[rank.rank]
    drift = clock(job.scenario, rank.node)[1]
    tids = np.array([rank.main_tid, autograd_tid(rank.main_tid)], dtype=np.int32)
    call_start, call_end = local(ints(sim.call_start), drift), local(ints(sim.call_end), drift)
    driver = np.array([n.startswith("cu") and not n.startswith("cuda") for n in job.names], dtype=np.bool_)
    name = small(sim.call_name)
    calls: dict[str, Any] = {
        "tid": tids[bytes_of(sim.call_thread)],
        "name": name,
        "start": call_start,
        "end": call_end,
        "correlation": np.arange(1, len(name) + 1, dtype=np.int64),
        "driver": driver[name],
    }
    ranges: dict[str, Any] = {
        "tid": tids[bytes_of(sim.range_thread)],
        "name": small(sim.range_name),
        "start": local(ints(sim.range_start), drift),
        "end": local(ints(sim.range_end), drift),
        "domain": bytes_of(sim.range_domain),
        "group": small(sim.range_group),
        "bytes": ints(sim.range_bytes),
        "peer": small(sim.range_peer),
    }
    kind, slot, call, event = table(sim.syncs, 4)
    syncs: dict[str, Any] = {
        "kind": kind.astype(np.int32),
        "stream": _STREAM[slot],
        "start": call_start[call],
        "end": call_end[call],
        "correlation": call + 1,
        "event": event.astype(np.int32),
    }
    slot, call, event = table(sim.events, 3)
    events: dict[str, Any] = {"stream": _STREAM[slot], "correlation": call + 1, "event": event.astype(np.int32)}
    tables = (_ops(sim, drift), calls, ranges, syncs, events)
    for part in tables:
        part["rank"] = np.full(len(next(iter(part.values()))), rank.rank, dtype=np.int32)
    return tables


def _ops(sim: RankSim, drift: float) -> dict[str, Any]:
    order = by_start(sim)
    n = len(order)
    size, copy_kind, comm_bytes = np.zeros(n, np.int64), np.zeros(n, np.int32), np.zeros(n, np.int64)
    group, seq, peer = (np.full(n, -1, dtype=np.int32) for _ in range(3))
    op, amount, kind = table(sim.copies, 3)
    size[op], copy_kind[op] = amount, kind
    op, of, ordinal, amount, other, _ = table(sim.comm, 6)
    group[op], seq[op], comm_bytes[op], peer[op] = of, ordinal, amount, other
    columns: dict[str, Any] = {
        "kind": bytes_of(sim.op_kind),
        "name": small(sim.op_name),
        "stream": _STREAM[bytes_of(sim.op_slot)],
        "start": local(ints(sim.op_start), drift),
        "end": local(ints(sim.op_end), drift),
        "correlation": small(sim.op_call).astype(np.int64) + 1,
        "bytes": size,
        "copy_kind": copy_kind,
        "group": group,
        "comm_seq": seq,
        "comm_bytes": comm_bytes,
        "peer": peer,
    }
    return {name: column[order] for name, column in columns.items()}


def _join(kind: Any, parts: list[dict[str, Any]]) -> Any:
    return kind(**{name: np.concatenate([p[name] for p in parts]) for name in kind.__dataclass_fields__})
