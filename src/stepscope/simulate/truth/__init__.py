"""The answers: per command, the rows that it must give for a simulated job.

`truth(job)` is a plain dictionary for JSON. Every command has `rows` in its columns (docs/cli.md), and `total`, the
number of rows before a very long table was cut (`idle` and `exposed` then keep the longest). What the documents leave
open is fixed by the docstrings of this package: the pieces of a gap in `idle`, the lateness in `stragglers`, the
segments of a critical path in `path`, the bubble in `pipeline`.

Rows about one rank are on the clock of its node, as its file has them. Rows across ranks (`collectives`, `stragglers`,
`critical-path`) are on the true clock. `clocks` gives each host's clock minus that of the first host, at t=0 of the
capture, once file times have been rebased by the session's UTC; file times themselves differ by drift alone.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from stepscope import progress
from stepscope.simulate.programs import execute as engine
from stepscope.simulate.programs.assemble import clock
from stepscope.simulate.programs.execute import Job
from stepscope.simulate.truth.facts import Facts, Rows
from stepscope.simulate.truth.idle import cause_rows, idle_rows
from stepscope.simulate.truth.meetings import Meetings
from stepscope.simulate.truth.onerank import (
    Exposure,
    Partition,
    breakdown_row,
    exposed_rows,
    overlap_rows,
    stream_rows,
)
from stepscope.simulate.truth.path import path_rows
from stepscope.simulate.truth.pipeline import bubble_row, item_rows
from stepscope.simulate.truth.stragglers import hit, straggler_rows
from stepscope.simulate.truth.windows import Span, chunk, iteration_rows, median_step, steps, window_row

SCHEMA = "stepscope-truth/1"
GPU = "NVIDIA H200"
#: Rows of one command that are kept.
MOST_ROWS = 50_000


def truth(job: Job) -> dict[str, Any]:
    """All answers for a job."""
    s = job.scenario
    answers: dict[str, Any] = {"schema": SCHEMA, "scenario": s.as_dict()}
    answers["setup"] = _section(_setup(job))
    answers["clocks"] = _section(_clocks(job))
    step = median_step([steps(Facts(job, rank)) for rank in range(s.world)])
    answers |= _each_rank(job, step)
    meetings = Meetings(job)
    answers["collectives"] = _section(meetings.rows())
    without = _without_each_fault(job)
    answers["stragglers"] = _section(straggler_rows(job, meetings, without))
    answers["critical-path"] = _path(job, meetings, step)
    answers["steps"] = step_times(job)
    answers["faults"] = _faults(job, without)
    return answers


def _section(rows: Rows, longest: Callable[[dict[str, Any]], int] | None = None, **more: Any) -> dict[str, Any]:
    kept = rows
    if len(rows) > MOST_ROWS:
        kept = sorted(rows, key=longest, reverse=True)[:MOST_ROWS] if longest else rows[:MOST_ROWS]
    return {"rows": kept, "total": len(rows), **more}


def _setup(job: Job) -> Rows:
    s = job.scenario
    return [
        {
            "rank": r.rank,
            "pid": r.pid,
            "host": r.host,
            "device": r.device,
            "gpu": GPU,
            "setup": r.setup,
            **{f"{axis}_rank": at for axis, (at, size) in r.coords.items() if f"{axis}=" in r.setup},
            **{f"{axis}_size": size for axis, (at, size) in r.coords.items() if f"{axis}=" in r.setup},
            "mbs": s.mbs,
            "seq": s.seq,
            "inferred": False,
        }
        for r in job.mesh.ranks
    ]


def _clocks(job: Job) -> Rows:
    hosts = {r.node: r.host for r in job.mesh.ranks}
    offset, drift = clock(job.scenario, 0)
    unknown = {"residual_p50_ns": None, "residual_p95_ns": None, "n": None}
    rows = []
    for node, host in sorted(hosts.items()):
        of_node = clock(job.scenario, node)
        rows.append({"host": host, "offset_ns": of_node[0] - offset, "drift_ppm": of_node[1] - drift, **unknown})
    return rows


def _each_rank(job: Job, step: int) -> dict[str, Any]:
    names = ("window", "streams", "overlap", "exposed", "breakdown", "iterations", "idle", "pipeline")
    rows: dict[str, Rows] = {name: [] for name in names}
    by_cause: Rows = []
    world = job.scenario.world
    for rank in range(world):
        progress.report("truth", rank, world)
        f = Facts(job, rank)
        window, whole = chunk(f, step), steps(f)[step]
        exposure, parts = Exposure(f, window), Partition(f, whole)
        rows["window"].append(window_row(f, window))
        rows["streams"] += stream_rows(f, window)
        rows["overlap"] += overlap_rows(f, exposure)
        rows["exposed"] += exposed_rows(f, exposure)
        rows["breakdown"].append(breakdown_row(f, parts))
        rows["iterations"] += iteration_rows(f)
        gaps = idle_rows(f, parts)
        rows["idle"] += gaps
        by_cause += cause_rows(f, gaps, parts.window)
        if job.scenario.pp > 1 and job.scenario.schedule != "two-stage":
            rows["pipeline"].append(bubble_row(f, whole))
    if job.scenario.schedule == "two-stage":
        rows["pipeline"] = item_rows(job)
    rows["exposed"].sort(key=lambda row: (-row["exposed_ns"], row["rank"], row["start_ns"]))
    sections: dict[str, Any] = {name: _section(table) for name, table in rows.items()}
    sections["idle"] = _section(rows["idle"], longest=lambda row: int(row["gap_ns"]), by_cause=by_cause)
    return sections


def _path(job: Job, meetings: Meetings, step: int) -> dict[str, Any]:
    """The path of the step, on the true clock: from the end of the step before it, on the last rank, to its own."""
    begins, ends, label = [], [], ""
    for rank in range(job.scenario.world):
        f = Facts(job, rank)
        span = steps(f)[step]
        label = span.label
        last = int(f.order[span.ops[np.argmax(f.end[span.ops])]])
        ends.append((job.sims[rank].op_end[last], -rank, last))
        begins.append(_begin(job, f, span))
    begin = max(begins) if step else min(begins)
    _, minus_rank, op = max(ends)
    rows = path_rows(job, meetings, begin, -minus_rank, op)
    by: dict[str, dict[str, int]] = {"kind": {}, "rank": {}}
    for row in rows:
        for key, totals in by.items():
            name = str(row[key])
            totals[name] = totals.get(name, 0) + row["dur_ns"]
    end = rows[-1]["end_ns"]
    length = {"label": label, "start_ns": begin, "end_ns": end, "step_ns": end - begin}
    return _section(rows, summary={"by_kind": by["kind"], "by_rank": by["rank"], "step": length})


def _begin(job: Job, f: Facts, span: Span) -> int:
    """When a rank began a step on its GPU: the end of an op, or of a range on the host; on the true clock."""
    sim = f.sim
    at = np.flatnonzero(f.end == span.start)
    if len(at):
        return int(max(sim.op_end[int(f.order[i])] for i in at))
    row = int(np.flatnonzero(f.range_start == span.start)[0])
    return int(sim.range_start[row])


def step_times(job: Job) -> list[int]:
    """How long each step took, from the end of the one before it (the beginning, for the first) to its own."""
    ends = [min(sim.range_start[0] for sim in job.sims), *job.step_ends()]
    return [b - a for a, b in pairwise(ends)]


def _without_each_fault(job: Job) -> list[Job]:
    """For every planted fault, the same job run without it."""
    s = job.scenario
    # A wrong clock changes what is recorded, not what happened.
    return [job if f.name == "clock" else engine.run(engine.without(s, i)) for i, f in enumerate(s.planted)]


def _faults(job: Job, without: list[Job]) -> Rows:
    """Every planted fault, with the time per step that it costs."""
    s, times = job.scenario, step_times(job)
    rows: Rows = []
    for i, (fault, other) in enumerate(zip(s.planted, without, strict=True)):
        saved = sorted(a - b for a, b in zip(times, step_times(other), strict=True))
        rows.append(
            {
                "fault": s.faults[i],
                "name": fault.name,
                "params": fault.params,
                "ranks": hit(job, fault),
                "step_ns": sorted(times)[len(times) // 2],
                "recoverable_ns": saved[len(saved) // 2],
            }
        )
    return rows
