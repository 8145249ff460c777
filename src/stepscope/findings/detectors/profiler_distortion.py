"""The profiler changes what it measures: it writes down so much of the host that launching slows down, and the step.

A range for every torch op, or every Python function, takes longer than what it names. Shares of such a profile on the
GPU hold; its step, its idle time and its overlap do not. That is true whatever else is found, so it is said first. What
it could save is the step replayed with launches at the pace of an eager framework; other findings about the host
promise what is left after that. Synchronizations of the program are its own (`host-sync`).
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, each_host, guilty, hosts, stage_of
from stepscope.findings.evidence.places import longest
from stepscope.findings.evidence.shown import LATE
from stepscope.findings.evidence.unprofiled import Cost, profiler_cost
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.intervals import Spans
from stepscope.model.range_names import TORCH_OP
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

ID = "profiler-distortion"

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
    return {r: of_host for r, of_host in each_host(case, _of).items() if of_host is not None}


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


DISTORTS = Threshold(
    25.0,
    "% of the step",
    "every profiler costs some: what nsys alone adds is 13; said first, it must be what matters most",
    ("h200/hf/hf1_rich.sqlite", "h200/train/eager.pt.trace.json.gz"),
)


def remedy(case: Case) -> Change:
    """Launches as quick as without so much recording."""
    cost = case.once(profiler_cost)
    if cost is not None:
        return cost.change
    return Change(host_time_cut={r: i.overhead for r, i in case.once(instrumented).items()})


def detect(case: Case) -> list[Finding]:
    cost = case.once(profiler_cost)
    return _by_records(case) if cost is None else _by_steps(case, cost)


def _by_steps(case: Case, cost: Cost) -> list[Finding]:
    """Steps before recording were shorter."""
    saved = round(case.step_ns - cost.step_ns)
    if not case.material(saved, DISTORTS):
        return []
    ranks = guilty({r: h.pace_ns or 0.0 for r, h in hosts(case).items()})
    worst = max(ranks, key=lambda r: (hosts(case)[r].pace_ns or 0.0, -r))
    spans = {r: hosts(case)[r].quicker(cost.factor) for r in ranks}
    return [
        Finding(
            ID,
            title("profiler-distortion/by-steps", step_ns=about(cost.step_ns), step_ns2=about(case.step_ns)),
            saved,
            "certain",
            f"a launch takes {about(hosts(case)[worst].pace_ns or 0.0)} of host time on rank {worst}, about "
            f"{cost.factor:.1f} times as long as without the profiler, and the step {about(case.step_ns)}. The "
            "profiler inflates idle time, launches and the step, but not the GPU's own work",
            advice("profiler-distortion/by-steps"),
            ("critical-path", ""),
            ranks=ranks,
            figures=(case.step_ns,),
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in hosts(case)[r].longest_idle("host", "api")),
            covers={r: hosts(case)[r].gaps_touched(s.start, s.end) for r, s in spans.items()},
            bound=True,
            warns=True,
        )
    ]


def _by_records(case: Case) -> list[Finding]:
    """Nothing says how long steps are without it, but it wrote down so much that it must."""
    slow = case.once(instrumented)
    if not slow:
        return []
    saved = case.credit(ID)
    if not case.material(saved, DISTORTS):
        return []
    ranks = guilty({r: i.host.pace_ns or 0.0 for r, i in slow.items()})
    worst = max(ranks, key=lambda r: (slow[r].host.pace_ns or 0.0, -r))
    most = slow[worst]
    starved = most.host.idle_ns(*LATE)
    spans = {r: slow[r].host.quicker(float("inf")) for r in ranks}
    return [
        Finding(
            ID,
            title("profiler-distortion/by-records", what=most.what),
            saved,
            "likely",
            f"on rank {worst} it writes {most.per_launch:.1f} records per launch, and a launch takes "
            f"{about(most.host.pace_ns or 0.0)} of host time: the GPU starves for {about(starved)} of the step. The "
            "profiler inflates idle time, launches and the step, but not the GPU's own work",
            advice("profiler-distortion/by-records"),
            ("launches", "--by rank"),
            ranks=ranks,
            figures=(starved,),
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in slow[r].host.longest_idle("host", "api")),
            covers={r: slow[r].host.gaps_touched(s.start, s.end) for r, s in spans.items()},
            bound=True,
            warns=True,
        )
    ]
