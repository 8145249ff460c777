"""What the simulation knows of one rank, as arrays in the order of the trace.

Times are those of the trace (the clock of the rank's node). The truth is a second implementation of semantics.md: it
shares no code with the analyses, and takes launch, enclosing range and role from the simulation, not from the trace.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.simulate.engine.record import MAIN
from stepscope.simulate.job.kernels import STREAM_IDS
from stepscope.simulate.programs.assemble import by_start, bytes_of, clock, ints, local, small, table
from stepscope.simulate.programs.execute import Job
from stepscope.simulate.trace.trace import DOMAIN_DEFAULT, I64, KERNEL

COMPUTE, COMM, COPY = 0, 1, 2
NO_STAGE = "(no stage)"
#: Rows of a table of the truth, as JSON has them; what they are compared with declares its columns.
Row = dict[str, Any]
Rows = list[Row]
Mask = npt.NDArray[np.bool_]
_STAGE = re.compile(r"stage[1-5]_[fbw]")


class Facts:
    """One rank. Rows of ops are in order of start; rows of calls and ranges are the engine's."""

    def __init__(self, job: Job, rank: int) -> None:
        sim = job.sims[rank]
        self.job, self.sim, self.rank, self.names = job, sim, rank, job.names
        self.who = {"rank": rank, "pid": job.mesh.ranks[rank].pid}
        drift = clock(job.scenario, job.mesh.ranks[rank].node)[1]
        self.order = order = by_start(sim)
        self.start, self.end = local(ints(sim.op_start), drift)[order], local(ints(sim.op_end), drift)[order]
        self.name = small(sim.op_name)[order]
        self.stream = np.array(STREAM_IDS, dtype=np.int64)[bytes_of(sim.op_slot)[order]]
        self.launch, self.range = small(sim.op_call)[order], small(sim.op_range)[order]
        role = np.where(bytes_of(sim.op_kind) == KERNEL, COMPUTE, COPY)
        self._comm = table(sim.comm, 6)
        role[self._comm[0]] = COMM
        self.role = role[order]
        self.call_start, self.call_end = local(ints(sim.call_start), drift), local(ints(sim.call_end), drift)
        self.call_name, self.call_thread = small(sim.call_name), bytes_of(sim.call_thread)
        self.range_start, self.range_end = local(ints(sim.range_start), drift), local(ints(sim.range_end), drift)
        self.range_name, self.range_parent = small(sim.range_name), small(sim.range_parent)
        self.range_thread = bytes_of(sim.range_thread)
        own = bytes_of(sim.range_domain) == DOMAIN_DEFAULT
        own[self.range_name == job.names.index(job.mesh.ranks[rank].setup)] = False
        #: rows of the ranges that say what the program was doing: neither NCCL's nor the setup label
        self.own = np.flatnonzero(own)

    @cached_property
    def launched(self) -> I64:
        """When each op's launch began on the host."""
        return self.call_start[self.launch]

    @cached_property
    def axis(self) -> npt.NDArray[np.object_]:
        """Axis of the communicator of each op, "" for what is not communication."""
        axes = np.full(len(self.start), "", dtype=object)
        groups = np.array([g.axis for g in self.job.mesh.groups], dtype=object)
        axes[self._comm[0]] = groups[self._comm[1]]
        return axes[self.order]

    def text(self, row: int) -> str | None:
        """Text of a range."""
        return self.names[int(self.range_name[row])] if row >= 0 else None

    @cached_property
    def stage(self) -> npt.NDArray[np.object_]:
        """Stage of each range: of its own name, else of the ranges around it; "" for none."""
        by_name = {n: m[-1] for n in np.unique(self.range_name).tolist() if (m := _STAGE.findall(self.names[n]))}
        return self._inherited(by_name)

    def _inherited(self, by_name: dict[int, str]) -> npt.NDArray[np.object_]:
        """A value per range, taken from its name or else from the nearest range around it that has one."""
        table = np.full(len(self.names), "", dtype=object)
        table[list(by_name)] = list(by_name.values())
        value, parent = table[self.range_name], self.range_parent.copy()
        while (parent >= 0).any():
            missing = (value == "") & (parent >= 0)
            value[missing] = table[self.range_name[parent[missing]]]
            parent = np.where(parent >= 0, self.range_parent[parent], -1)
        return value

    @cached_property
    def in_pipeline(self) -> Mask:
        """Ranges of the pipeline's own communication."""
        by_name = {n: "p" for n in np.unique(self.range_name).tolist() if "pipeline send/recv" in self.names[n]}
        mask: Mask = self._inherited(by_name) != ""
        return mask

    def range_at(self, thread: int, times: I64) -> I64:
        """Innermost range of a thread at each time, else of the main thread; -1 for none."""
        innermost = self._top(thread, times)
        return np.where(innermost >= 0, innermost, self._top(MAIN, times)) if thread != MAIN else innermost

    def _top(self, thread: int, times: I64) -> I64:
        rows = self.own[self.range_thread[self.own] == thread]
        at = np.concatenate([self.range_start[rows], self.range_end[rows]])
        then = np.concatenate([rows, self.range_parent[rows]])
        order = np.argsort(at, kind="stable")
        if len(order) == 0:
            return np.full(len(times), -1, dtype=np.int64)
        index = np.searchsorted(at[order], times, side="right") - 1
        return np.where(index >= 0, then[order][np.maximum(index, 0)], -1).astype(np.int64)


def edges_of(*times: I64 | list[int]) -> I64:
    """All these times, in order, each once. (NumPy's `unique` hashes, which is many times slower here.)"""
    every = np.sort(np.concatenate([np.asarray(t, dtype=np.int64) for t in times]), kind="stable")
    first = np.ones(len(every), dtype=bool)
    first[1:] = every[1:] != every[:-1]
    return every[first]


def counts(start: I64, end: I64, edges: I64) -> I64:
    """How many of the intervals cover each stretch between neighbouring edges. Every endpoint must be an edge."""
    delta = np.bincount(np.searchsorted(edges, start), minlength=len(edges)).astype(np.int64)
    delta -= np.bincount(np.searchsorted(edges, end), minlength=len(edges))
    return np.cumsum(delta)[:-1]
