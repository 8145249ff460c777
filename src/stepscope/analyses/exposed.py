"""Which single communication ops cost the step most, and what was compute doing instead?

The worst ops by exposed time, each with the range that launched it. While an op is exposed the rank computes nothing:
either the next compute kernel was already launched and something held it (`held_ns`: an event, stream order, this very
op), or the host had not launched it yet (`starved_ns`). The two sum to the exposed time, and call for different cures.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from stepscope.analyses._comm import CommOps, comm_ops, need_communication
from stepscope.analyses._graphs import graph_notes
from stepscope.analyses._rank import COMPUTE, STAGE, RankData, ranks_of
from stepscope.analyses._window import WindowSpec, windows
from stepscope.intervals import Spans, subtract
from stepscope.model.profile import Profile
from stepscope.model.result import Col, Result, rows

COLUMNS = (
    Col("rank", "rank of the process"),
    Col("pid", "process id on its host"),
    Col("stage", "stage of the trainer's labels, or (no stage)"),
    Col("range", "range that launched it"),
    Col("name", "kernel name"),
    Col("stream", "stream id within the process"),
    Col("start_ns", "start on the GPU"),
    Col("dur_ns", "duration"),
    Col("exposed_ns", "part of it during which the rank computes nothing"),
    Col("barrier", "in order with compute on its own stream"),
    Col("held_ns", "exposed while the next compute kernel was launched but had to wait"),
    Col("starved_ns", "exposed while the host had not launched the next compute kernel"),
    Col("next_op", "the compute kernel that ended the (longest) exposed stretch; null where none followed"),
)


def exposed(
    profile: Profile,
    window: WindowSpec,
    *,
    top: Annotated[int, "how many ops, over all ranks; 0 for all"] = 20,
    stage: Annotated[str, "what a stage range is called (regular expression)"] = STAGE,
) -> Result:
    need_communication(profile)
    chosen = windows(profile, window)
    worst: list[tuple[int, RankData, CommOps, int]] = []
    for data in ranks_of(profile):
        for span in chosen.of(data.rank):
            comm = comm_ops(data, span)
            order = np.argsort(-comm.exposed, kind="stable")[: top or None]
            worst += [(-int(comm.exposed[i]), data, comm, int(i)) for i in order]
    worst.sort(key=lambda w: (w[0], w[1].rank, int(w[2].start[w[3]])))
    table = [_row(profile, data, comm, i, stage) for _, data, comm, i in worst[: top or None]]
    return Result(rows(COLUMNS, table), chosen.rows(), notes=[*chosen.notes, *graph_notes(profile)])


def _row(profile: Profile, data: RankData, comm: CommOps, i: int, stage: str) -> dict[str, Any]:
    op = comm.ops[i : i + 1]
    held, starved, next_op = _instead(data, int(comm.start[i]), int(comm.end[i]))
    return {
        "rank": data.rank,
        "pid": data.pid,
        "stage": data.stage_of(op, stage)[0],
        "range": data.text_of(data.enclosing(op))[0],
        "name": profile.names[int(data.name[op[0]])],
        "stream": int(data.stream[op[0]]),
        "start_ns": int(comm.start[i]),
        "dur_ns": int(comm.length[i]),
        "exposed_ns": int(comm.exposed[i]),
        "barrier": bool(comm.barrier[i]),
        "held_ns": held,
        "starved_ns": starved,
        "next_op": None if next_op is None else profile.names[int(data.name[next_op])],
    }


def _instead(data: RankData, start: int, end: int) -> tuple[int, int, int | None]:
    """Split the exposed part of [start, end) at the launch of the compute kernel that follows each stretch."""
    bare = subtract(Spans.of(start, end), data.compute)
    compute = np.flatnonzero(data.role == COMPUTE)
    held, longest, next_op = 0, -1, None
    for lo, hi in zip(bare.start.tolist(), bare.end.tolist(), strict=True):
        k = int(np.searchsorted(data.start[compute], lo))
        after = int(compute[k]) if k < len(compute) else None
        if after is not None:
            launched = int(data.launched_at[after])
            held += max(0, hi - max(lo, launched))
        if hi - lo > longest:
            longest, next_op = hi - lo, after
    return held, bare.length() - held, next_op
