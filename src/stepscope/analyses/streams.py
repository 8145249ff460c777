"""What each stream is for: compute, communication (and which), or copies.

A stream is communication if its kernels are, apart from helpers: the layout and copy kernels of its library, and few
others (a tenth of its kernels and a hundredth of its time). More compute in order with the collectives makes them
barriers. A stream that mixes purposes is called `mixed`, not by its majority. Streams that are idle in the window
are judged by the whole capture, so that none goes missing.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

import numpy as np

from stepscope.derive.accounting.named_window import about_window
from stepscope.derive.comm.outside import outside_notes
from stepscope.derive.comm.purpose import UNKNOWN, purpose_of, unanimous
from stepscope.derive.rank.data import COMM, COMPUTE, COPY, RankData, ranks_of
from stepscope.derive.rank.needs import need_ops
from stepscope.derive.rank.streams import streams_of
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import Window
from stepscope.intervals.arrays import I64
from stepscope.model.note import noted
from stepscope.model.profile import Profile
from stepscope.model.result import Result
from stepscope.model.statement import STATEMENT, listed, several


class Row(TypedDict):
    rank: Annotated[int, "rank of the process"]
    pid: Annotated[int | None, "process id on its host"]
    device: Annotated[int | None, "CUDA ordinal of the stream's device"]
    stream: Annotated[int, "stream id within the process"]
    n_comm: Annotated[int, "communication ops in the window"]
    n_comp: Annotated[int, "compute kernels in the window"]
    n_copy: Annotated[int, "copies and memsets in the window"]
    comm_ns: Annotated[int, "sum of the communication ops' durations"]
    comp_ns: Annotated[int, "sum of the compute kernels' durations"]
    kind: Annotated[str, "compute, comm (its kernels are communication, apart from helpers) or copy"]
    purpose: Annotated[
        str | None,
        "what a comm stream serves: ep_a2a, cp_ring, ep_meta, pp_p2p, dp_grads, dp_params, an axis, mixed or unknown",
    ]


def streams(profile: Profile, window: WindowSpec) -> Result:
    need_ops(profile)
    chosen = windows(profile, window, "chunk")
    table: list[Row] = []
    idle = 0
    for data in ranks_of(profile):
        of_rank = _Streams(profile, data)
        for span in chosen.of(data.rank):
            listed, unused = of_rank.rows(span)
            table += span.keyed(listed)
            idle += unused
    notes = [*chosen.notes, *outside_notes(profile, chosen)]
    if idle:
        notes.append(noted("streams-idle", number=idle))
    statement = _statement(about_window(chosen.spans), table)
    return Result(chosen.table(Row, table), chosen.rows(), {STATEMENT: statement}, notes)


def _statement(where: str, table: list[Row]) -> str:
    """How many streams there are of each kind, and whether communication shares one with compute."""
    streams = {(r["rank"], r["device"], r["stream"]): r for r in table}
    if not streams:
        return f"Nothing runs on the GPU in {where}."
    names = {"compute": "compute", "comm": "communication", "copy": "copies"}
    kinds = [r["kind"] for r in streams.values()]
    purposes = listed(sorted({r["purpose"] for r in streams.values() if r["purpose"]} - {UNKNOWN}))
    for_what = {"comm": f" ({purposes})"} if purposes else {}
    of = [f"{kinds.count(k)} for {name}{for_what.get(k, '')}" for k, name in names.items() if k in kinds]
    ranks = len({r["rank"] for r in table})
    shared = sum(r["kind"] == "compute" and r["n_comm"] > 0 for r in table)
    beside = f"; on {several(shared, 'of them', 'of them')} communication is in order with compute" if shared else ""
    who = f"{several(ranks, 'rank')} {'has' if ranks == 1 else 'have'}"
    return f"{who} {several(len(streams), 'stream')} in {where}: {listed(of)}{beside}."


class _Streams:
    """The streams of one rank, numbered by device and id; windows look at their own ops only."""

    def __init__(self, profile: Profile, data: RankData) -> None:
        self._data = data
        self._streams = streams_of(data)
        self._of = self._streams.of
        self._names = list(zip(self._streams.device.tolist(), self._streams.stream.tolist(), strict=True))
        self._comm = np.flatnonzero(data.role == COMM)
        self._purpose = purpose_of(profile, data, self._comm)
        self._whole = self._kinds(np.arange(len(self._of)))

    def _kinds(self, ops: I64) -> list[str]:
        """What each stream is for, by these ops."""
        computes = self._streams.computes(self._data, ops)
        carries = self._streams.counts(self._data, ops)[:, COMM] > 0
        kinds: list[str] = np.where(computes, "compute", np.where(carries, "comm", "copy")).tolist()
        return kinds

    def _purpose_of(self, ops: I64, stream: int) -> str:
        mine = ops[(self._of[ops] == stream) & (self._data.role[ops] == COMM)]
        return unanimous(self._purpose.gather(np.searchsorted(self._comm, mine)))

    def rows(self, span: Window) -> tuple[list[Row], int]:
        """A row per stream, and how many of them are idle in the window."""
        counts, kinds = self._streams.counts(self._data, span.ops), self._kinds(span.ops)
        total = np.zeros(counts.shape, dtype=np.int64)
        np.add.at(total, (self._of[span.ops], self._data.role[span.ops]), span.lengths(self._data))
        table: list[Row] = []
        idle = 0
        for k, (device, stream) in enumerate(self._names):
            used = bool(counts[k].any())
            idle += not used
            kind = (kinds if used else self._whole)[k]
            ops = span.ops if used else np.arange(len(self._of))
            table.append(
                {
                    "rank": self._data.rank,
                    "pid": self._data.pid,
                    "device": device if device >= 0 else None,
                    "stream": stream,
                    "n_comm": int(counts[k, COMM]),
                    "n_comp": int(counts[k, COMPUTE]),
                    "n_copy": int(counts[k, COPY]),
                    "comm_ns": int(total[k, COMM]),
                    "comp_ns": int(total[k, COMPUTE]),
                    "kind": kind,
                    "purpose": self._purpose_of(ops, k) if kind == "comm" else None,
                }
            )
        return table, idle
