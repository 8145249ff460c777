"""The step grows over the run: a list that keeps graphs, metrics over all that was seen, memory, clocks.

The trend is that of the usual steps. What it costs is what steps take beyond the first, in the mean over the run; a
longer run loses more. Why is looked for in what the last steps hold that the first do not.
"""

from __future__ import annotations

from stepscope.derive.run.job import run_of
from stepscope.findings.case import Case
from stepscope.findings.finding import Finding, Place
from stepscope.findings.growth import first_and_last
from stepscope.findings.run.beyond import beyond
from stepscope.findings.run.episodes import names_elsewhere
from stepscope.findings.run.inside import inside_step
from stepscope.findings.texts import advice, title
from stepscope.model.range_names import short_range
from stepscope.model.units import about

ID = "drift"


def detect(case: Case) -> list[Finding]:
    run = run_of(case.profile) if case.of_run else None
    if run is None or run.kinds is None or run.kinds.drift is None or run.kinds.drift.change_ns <= 0:
        return []
    drift = run.kinds.drift
    first, last = first_and_last(case.profile)
    rank = max(
        (r for r in run.ranks if first in r.label and last in r.label),
        key=lambda r: (int(r.step_ns[r.label.index(last)] - r.step_ns[r.label.index(first)]), -r.data.rank),
    )
    k, k0 = rank.label.index(last), rank.label.index(first)
    why = beyond(inside_step(rank, k), inside_step(rank, k0), names_elsewhere(rank.data, k))
    most = max(why.extra, key=lambda what: why.extra[what])
    lo, hi = int(rank.edges[k]), int(rank.edges[k + 1])
    steps = int(run.number[-1] - run.number[0]) + 1
    return [
        Finding(
            ID,
            title("drift", slope_ns=about(drift.slope_ns), change_ns=about(drift.change_ns), steps=steps),
            round(drift.change_ns / 2),
            "certain" if why.recorded else "likely",
            f"`{short_range(last)}` takes {about(hi - lo)} on rank {rank.data.rank}, `{short_range(first)}` "
            f"{about(int(rank.step_ns[k0]))}; most of what is more: {most} {about(why.extra[most])}",
            advice("drift"),
            ("run", "--by step") if case.on_host else ("breakdown", f"--rank {rank.data.rank}" * (len(case.ranks) > 1)),
            ranks=case.ranks,
            figures=(hi - lo,),
            where=(Place(rank.data.rank, lo, hi),),
            of_run=True,
            index=None if case.on_host else k,
        )
    ]
