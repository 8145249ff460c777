"""What each stream is for: compute, communication (and which), or copies.

A stream is communication only if every kernel on it is: one compute kernel in order with the collectives makes them
barriers, and a stream that mixes purposes is called `mixed`, not by its majority. Streams that are idle in the window
are judged by the whole capture, so that none goes missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.analyses._comm import need_ops
from stepscope.analyses._purpose import purpose_of, unanimous
from stepscope.analyses._rank import COMM, COMPUTE, COPY, RankData, ranks_of
from stepscope.analyses._window import Window, WindowSpec, windows
from stepscope.model.profile import Profile
from stepscope.model.result import Col, Result, rows

COLUMNS = (
    Col("rank", "rank of the process"),
    Col("pid", "process id on its host"),
    Col("device", "CUDA ordinal of the stream's device"),
    Col("stream", "stream id within the process"),
    Col("n_comm", "communication ops in the window"),
    Col("n_comp", "compute kernels in the window"),
    Col("n_copy", "copies and memsets in the window"),
    Col("comm_ns", "sum of the communication ops' durations"),
    Col("comp_ns", "sum of the compute kernels' durations"),
    Col("kind", "compute, comm (every kernel is communication) or copy"),
    Col("purpose", "what a comm stream serves: ep_a2a, cp_ring, ep_meta, pp_p2p, an axis, mixed or unknown"),
)


def streams(profile: Profile, window: WindowSpec) -> Result:
    need_ops(profile)
    chosen = windows(profile, window)
    table: list[dict[str, Any]] = []
    idle = 0
    for data in ranks_of(profile):
        for span in chosen.of(data.rank):
            found, unused = _streams(profile, data, span)
            table += found
            idle += unused
    notes = list(chosen.notes)
    if idle:
        notes.append(f"{idle} streams have nothing in the window: kind and purpose are those of the whole capture")
    return Result(rows(COLUMNS, table), chosen.rows(), notes=notes)


def _streams(profile: Profile, data: RankData, span: Window) -> tuple[list[dict[str, Any]], int]:
    device = data.ops["device"].fill_null(-1).to_numpy()
    in_window = np.zeros(len(data.start), dtype=bool)
    in_window[span.ops] = True
    length = _lengths(data, span)
    table, idle = [], 0
    for dev, stream in np.unique(np.stack([device, data.stream]), axis=1).T.tolist():
        mine = (device == dev) & (data.stream == stream)
        inside = mine & in_window
        idle += not inside.any()
        judged = inside if inside.any() else mine
        comm, comp, copy = (inside & (data.role == role) for role in (COMM, COMPUTE, COPY))
        kind = _kind(data.role[judged])
        purpose = (
            unanimous(purpose_of(profile, data, np.flatnonzero(judged & (data.role == COMM))))
            if kind == "comm"
            else None
        )
        table.append(
            {
                "rank": data.rank,
                "pid": data.pid,
                "device": dev if dev >= 0 else None,
                "stream": stream,
                "n_comm": int(comm.sum()),
                "n_comp": int(comp.sum()),
                "n_copy": int(copy.sum()),
                "comm_ns": int(length[comm].sum()),
                "comp_ns": int(length[comp].sum()),
                "kind": kind,
                "purpose": purpose,
            }
        )
    return table, idle


def _kind(roles: npt.NDArray[np.uint8]) -> str:
    if (roles == COMPUTE).any():
        return "compute"
    return "comm" if (roles == COMM).any() else "copy"


def _lengths(data: RankData, span: Window) -> npt.NDArray[np.int64]:
    """Durations; cut at the edges of a window that was given in GPU time."""
    if not span.clipped or span.gpu_start_ns is None or span.gpu_end_ns is None:
        return data.end - data.start
    return data.lengths(span.gpu_start_ns, span.gpu_end_ns)
