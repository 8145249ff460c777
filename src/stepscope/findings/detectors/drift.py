"""The step grows over the run: a list that keeps graphs, metrics over all that was seen, memory, clocks.

The trend is that of the usual steps, or of what the GPU computes in them: where a profiler slows the host, that grows
unseen, and what it costs is an upper bound. It costs what steps take beyond the first, in the mean over the run: beyond
the program's first, where it is some kernels that grow, and how many steps were before is known. A longer run loses
more. Why is looked for in what the last steps hold that the first do not.
"""

from __future__ import annotations

from stepscope.derive.run.job import run_of
from stepscope.derive.run.kinds import Drift
from stepscope.findings.case import Case
from stepscope.findings.finding import Finding, Place
from stepscope.findings.growth import first_and_last
from stepscope.findings.run.beyond import beyond
from stepscope.findings.run.episodes import names_elsewhere
from stepscope.findings.run.growing import growing
from stepscope.findings.run.inside import inside_step
from stepscope.findings.texts import advice, title
from stepscope.model.range_names import short_range
from stepscope.model.statement import several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

ID = "drift"
_HIDDEN = Threshold(
    50.0,
    "% of what the GPU computes more",
    "where steps grow by less, something else decides how long they are",
    ("tests/findings/test_growing.py",),
)


def detect(case: Case) -> list[Finding]:
    run = run_of(case.profile) if case.of_run else None
    if run is None or run.kinds is None:
        return []
    grows, drift = growing(case.profile), run.kinds.drift
    if grows is None and (drift is None or drift.change_ns <= 0):
        return []
    # A host that the profiler slows hides what the GPU computes more.
    hidden = grows is not None and (drift is None or drift.change_ns < _HIDDEN.share * grows.drift.change_ns)
    if hidden or drift is None:
        assert grows is not None, "one of both is there"
        drift = grows.drift
    first, last = first_and_last(case.profile)
    rank = max(
        (r for r in run.ranks if first in r.label and last in r.label),
        key=lambda r: (int(r.step_ns[r.label.index(last)] - r.step_ns[r.label.index(first)]), -r.data.rank),
    )
    rank = grows.rank if hidden and grows is not None else rank
    k, k0 = rank.label.index(last), rank.label.index(first)
    why = beyond(inside_step(rank, k), inside_step(rank, k0), names_elsewhere(rank.data, k))
    most = "compute" if hidden else max(why.extra, key=lambda what: why.extra[what])
    lo, hi = int(rank.edges[k]), int(rank.edges[k + 1])
    steps = int(run.number[-1] - run.number[0]) + 1
    before = grows.before if grows is not None and most == "compute" else 0
    since = f"; the program had made {several(before, 'step')} before, which grew as well" if before else ""
    return [
        Finding(
            ID,
            _title(drift, steps, hidden),
            round(drift.slope_ns * before + drift.change_ns / 2),
            "certain" if why.recorded else "likely",
            f"`{short_range(last)}` takes {about(hi - lo)} on rank {rank.data.rank}, `{short_range(first)}` "
            f"{about(int(rank.step_ns[k0]))}; most of what is more: {most} {about(why.extra[most])}{since}",
            advice("drift"),
            ("run", "--by step") if case.on_host else ("breakdown", f"--rank {rank.data.rank}" * (len(case.ranks) > 1)),
            ranks=case.ranks,
            figures=(hi - lo,),
            where=(Place(rank.data.rank, lo, hi),),
            of_run=True,
            index=None if case.on_host else k,
            bound=hidden,
        )
    ]


def _title(drift: Drift, steps: int, hidden: bool) -> str:
    slope, change = about(drift.slope_ns), about(drift.change_ns)
    if hidden:
        return title("drift/compute", slope_ns=slope, change_ns=change, steps=steps)
    return title("drift", slope_ns=slope, change_ns=change, steps=steps)
