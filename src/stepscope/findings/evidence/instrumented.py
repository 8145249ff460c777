"""Profilers that slow the host: a range for every torch op, Python's stack at every call."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, hosts
from stepscope.intervals import Spans
from stepscope.model.range_names import TORCH_OP
from stepscope.model.threshold import Threshold

DISTORTED_PACE = Threshold(
    40.0,
    "µs per launch",
    "eager frameworks take 15 to 35 under nsys or a plain torch.profiler; with a range for every op, 55",
    ("h200/hf/hf1_rich.sqlite", "h200/hf/hf1_healthy.sqlite"),
)
UNDISTORTED_PACE = Threshold(
    24.0,
    "µs per launch",
    "what the same job takes without: transformers 23.7, other eager loops 17 to 29",
    ("h200/hf/hf1_healthy.sqlite", "tests/data/promises"),
)
EVENTS_PER_LAUNCH = Threshold(
    2.0,
    "records of the host per launch",
    "torch runs one to three ops per launch; a profiler that writes each of them down is in their way",
    ("h200/hf/hf1_rich.sqlite",),
)


class Instrumented(Struct, frozen=True):
    """A rank whose profile records so much of its host that it is slow: what, how often per launch, and the pace."""

    host: Host
    what: str
    per_launch: float

    @property
    def overhead(self) -> Spans:
        """Host time that launching takes beyond what an eager framework needs: the profiler's, as far as is known."""
        return self.host.quicker((self.host.pace_ns or 0.0) / UNDISTORTED_PACE.ns)


def instrumented(case: Case) -> dict[int, Instrumented]:
    """By rank: profiles that slow launching down, and so the step."""
    return {r: by_rank for r, h in hosts(case).items() if (by_rank := _of(h)) is not None}


def _of(host: Host) -> Instrumented | None:
    launches = pl.Series(host.data.launch[host.window.ops]).n_unique()  # NumPy takes a hundred times as long
    if not launches or (host.pace_ns or 0.0) < DISTORTED_PACE.ns:
        return None
    ranges = host.data.ranges
    inside = (pl.col("start_ns") >= host.begin) & (pl.col("start_ns") < host.end)
    torch_ops = host.profile.names_with(TORCH_OP)[ranges.filter(inside)["name"].to_numpy()].sum()
    kinds = (
        host.data.host.filter(inside)["kind"].cast(pl.String)
        if host.data.host.height
        else pl.Series([], dtype=pl.String)
    )
    counts = {
        "a range for every torch op": int(torch_ops),
        "every Python function": int((kinds == "python").sum()),
    }
    what = max(counts, key=lambda k: counts[k])
    per_launch = counts[what] / launches
    return Instrumented(host, what, per_launch) if per_launch >= EVENTS_PER_LAUNCH.value else None
