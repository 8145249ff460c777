"""Streams, overlap, exposure and breakdown of one rank's window (semantics §2, §5, §6)."""

from __future__ import annotations

import numpy as np

from stepscope.simulate.trace.trace import I64
from stepscope.simulate.truth.facts import COMM, COMPUTE, COPY, NO_STAGE, Facts, Mask, Row, Rows, counts, edges_of
from stepscope.simulate.truth.windows import Span

_BY_AXIS = {"ep": "ep_a2a", "pp": "pp_p2p", "cp": "cp_ring", "tp": "tp"}


def stream_rows(f: Facts, s: Span) -> Rows:
    """Rows of `streams`: every stream of the rank, judged by the window, or by the capture if idle in the window."""
    inside = np.zeros(len(f.start), dtype=bool)
    inside[s.ops] = True
    length = f.end - f.start
    rows = []
    for stream in np.unique(f.stream).tolist():
        mine = f.stream == stream
        here = mine & inside
        judged = here if here.any() else mine
        kind = "compute" if (f.role[judged] == COMPUTE).any() else "comm" if (f.role[judged] == COMM).any() else "copy"
        comm, comp, copy = (here & (f.role == role) for role in (COMM, COMPUTE, COPY))
        rows.append(
            {
                **f.who,
                "device": f.job.mesh.ranks[f.rank].device,
                "stream": stream,
                "n_comm": int(comm.sum()),
                "n_comp": int(comp.sum()),
                "n_copy": int(copy.sum()),
                "comm_ns": int(length[comm].sum()),
                "comp_ns": int(length[comp].sum()),
                "kind": kind,
                "purpose": _purpose(f, np.flatnonzero(judged & (f.role == COMM))) if kind == "comm" else None,
            }
        )
    return rows


def _purpose(f: Facts, ops: I64) -> str:
    """What all these ops serve, or `mixed`."""
    ring = f.job.scenario.cp > 1
    stages = np.where(f.range[ops] >= 0, f.stage[f.range[ops]], "")
    pipeline = (f.range[ops] >= 0) & f.in_pipeline[f.range[ops]]
    ids = set()
    for stage, pipe, axis in set(zip(stages.tolist(), pipeline.tolist(), f.axis[ops].tolist(), strict=True)):
        if pipe:
            ids.add("pp_p2p")
        elif stage and stage[5] in "124":
            ids.add("ep_a2a" if stage[5] != "1" else "cp_ring" if ring else "ep_meta")
        else:
            ids.add(_BY_AXIS.get(axis, "dp"))
    return ids.pop() if len(ids) == 1 else "mixed"


class Exposure:
    """The communication of a window against all compute of the rank."""

    def __init__(self, f: Facts, s: Span) -> None:
        compute = f.role == COMPUTE
        self.ops = ops = s.ops[f.role[s.ops] == COMM]
        self.start, self.end = f.start[ops], f.end[ops]
        far = np.iinfo(np.int64).max
        near = compute & (f.end > self.start.min(initial=far)) & (f.start < self.end.max(initial=-far))
        self._edges = edges_of(f.start[near], f.end[near], self.start, self.end)
        self._bare = counts(f.start[near], f.end[near], self._edges) == 0
        lengths = np.where(self._bare, np.diff(self._edges), 0)
        until = np.concatenate([[0], np.cumsum(lengths)])
        at = np.searchsorted(self._edges, np.stack([self.start, self.end]))
        self.exposed: I64 = until[at[1]] - until[at[0]] if len(ops) else np.zeros(0, np.int64)
        self.barrier: Mask = np.isin(f.stream[ops], f.stream[s.ops[compute[s.ops]]])
        stage = np.where(f.range[ops] >= 0, f.stage[f.range[ops]], "")
        self.stage = np.where(stage == "", NO_STAGE, stage)

    def wall(self, mine: Mask) -> int:
        """Time in which some of these ops run and no compute does."""
        if not mine.any():
            return 0
        running = counts(self.start[mine], self.end[mine], self._edges) > 0
        return int(np.diff(self._edges)[running & self._bare].sum())


def overlap_rows(f: Facts, e: Exposure) -> Rows:
    """Rows of `overlap`, one per stage."""
    rows = []
    for stage in sorted(set(e.stage.tolist()), key=lambda x: (x == NO_STAGE, x)):
        of = e.stage == stage
        mine = of & ~e.barrier
        length, bare = (e.end - e.start)[mine], e.exposed[mine]
        total, exposed = int(length.sum()), int(bare.sum())
        each = 100.0 * (1.0 - bare / length)
        rows.append(
            {
                **f.who,
                "stage": stage,
                "n": int(mine.sum()),
                "comm_ns": total,
                "exposed_ns": exposed,
                "exposed_wall_ns": e.wall(mine),
                "overlap_pct": 100.0 * (1.0 - exposed / total) if total else None,
                "overlap_min_pct": float(each.min()) if total else None,
                "overlap_max_pct": float(each.max()) if total else None,
                "barrier_ns": int((e.end - e.start)[of & e.barrier].sum()),
            }
        )
    return rows


def exposed_rows(f: Facts, e: Exposure) -> Rows:
    """Rows of `exposed`: every communication op of the window."""
    return [
        {
            **f.who,
            "stage": e.stage[i],
            "range": f.text(int(f.range[op])),
            "name": f.names[int(f.name[op])],
            "stream": int(f.stream[op]),
            "start_ns": int(f.start[op]),
            "dur_ns": int(f.end[op] - f.start[op]),
            "exposed_ns": int(e.exposed[i]),
            "barrier": bool(e.barrier[i]),
        }
        for i, op in enumerate(e.ops.tolist())
    ]


class Partition:
    """Each instant of the window, by the first of compute, communication and copies that runs."""

    def __init__(self, f: Facts, s: Span) -> None:
        start, end = np.clip(f.start, s.start, s.end), np.clip(f.end, s.start, s.end)
        self.edges = edges_of(start, end, [s.start, s.end])
        compute, comm, copy = (
            counts(start[mine], end[mine], self.edges) > 0 for mine in (f.role == r for r in (COMPUTE, COMM, COPY))
        )
        length = np.diff(self.edges)
        self.idle: Mask = ~(compute | comm | copy)
        self.parts = {
            "compute": int(length[compute].sum()),
            "comm_exposed": int(length[comm & ~compute].sum()),
            "copy_exposed": int(length[copy & ~comm & ~compute].sum()),
            "idle": int(length[self.idle].sum()),
        }
        self.hidden = int(length[comm & compute].sum())
        self.window = s.end - s.start


def breakdown_row(f: Facts, p: Partition) -> Row:
    """Row of `breakdown`."""
    return {
        **f.who,
        "window_ns": p.window,
        **{f"{name}_ns": ns for name, ns in p.parts.items()},
        "comm_hidden_ns": p.hidden,
        **{f"{name}_pct": 100.0 * ns / p.window for name, ns in p.parts.items()},
    }
