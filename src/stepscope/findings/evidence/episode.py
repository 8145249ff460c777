"""What a finding says of an episode of the run: when it comes, what it costs per step, and which step shows it."""

from __future__ import annotations

import numpy as np

from stepscope.derive.run.account import rank_run
from stepscope.findings.case import Case
from stepscope.findings.finding import Cause, Finding, Place
from stepscope.findings.run.episodes import Episode
from stepscope.model.range_names import short_range
from stepscope.model.statement import listed, several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

RUNS_DIFFER = Threshold(
    30.0,
    "% of the cost",
    "in another run of the same program a checkpoint or a collection takes up to 25 % more or less",
    ("tests/findings/test_waste_pairs.py",),
)
PART_NAMED = Threshold(
    5.0,
    "% of the excess",
    "smaller parts of what a step takes beyond its like say nothing of why",
    ("tests/findings/test_run_findings.py",),
)


#: So many parts of the excess are listed.
_LISTED = 3


def when(e: Episode) -> str:
    """`every 3 steps`, `once in 11 steps`, `in 2 of 11 steps`."""
    if e.every:
        return f"every {e.every} steps"
    return f"once in {e.steps} steps" if len(e.rows) == 1 else f"in {len(e.rows)} of {e.steps} steps"


def each(e: Episode) -> str:
    """How long one of them is, in the mean."""
    return about(e.each_ns)


def where(e: Episode) -> str:
    """On which rank, where the others only wait for it."""
    return f" on rank {e.rank}, and the others wait for it" if e.of_one_rank else ""


def episode_finding(case: Case, e: Episode, ident: str, title: str, advice: str, cause: Cause | None = None) -> Finding:
    """The finding of an episode. Its evidence is the step that stands for the episode, beside a usual one."""
    run = rank_run(case.data_of(e.rank))
    assert run is not None, "it has steps"
    lo, hi = int(run.edges[e.step]), int(run.edges[e.step + 1])
    shown = int(run.between_ns[e.step]) if e.between else hi - lo
    beside = "between it and the step before" if e.between else f"instead of {about(int(run.step_ns[e.usual_step]))}"
    evidence = (
        f"`{short_range(e.label)}` takes {about(shown)} {beside} on rank {e.rank}: {parts(e)}; {_count(e)} of "
        f"{e.steps} {'has' if len(e.rows) == 1 else 'have'} it, {_often(e)}"
    )
    end = int(run.until[e.step]) if e.between else hi
    of_the_run = e.between or case.on_host
    command = ("run", "--by step") if of_the_run else ("breakdown", f"--rank {e.rank}" * (len(case.ranks) > 1))
    low, high = _interval(e)
    return Finding(
        ident,
        f"{title}{where(e)}",
        round(e.per_step_ns),
        cause or ("certain" if e.why.recorded else "likely"),
        evidence,
        advice,
        command,
        ranks=(e.rank,) if e.of_one_rank else case.ranks,
        figures=(shown,),
        where=(Place(e.rank, lo, end),),
        low_ns=low,
        high_ns=high,
        of_run=True,
        index=None if of_the_run else e.step,
    )


def _often(e: Episode) -> str:
    """What recurs counts by its period, whatever the capture has of it: 120 ms every fourth step are 30 ms per step."""
    plain = "" if e.plain == 1.0 else f" without the profiler, under which it takes {1.0 / e.plain:.1f} times as long"
    if e.every:
        return f"every {e.every} steps: {about(e.per_step_ns)} per step{plain}"
    return f"{about(e.per_step_ns)} per step on average{plain}"


def _count(e: Episode) -> str:
    return several(len(e.rows), "step") if len(e.rows) > 1 else "1"


def parts(e: Episode) -> str:
    """What the excess is made of, the largest first, and the range around it."""
    largest = sorted(e.why.extra.items(), key=lambda item: -item[1])[:_LISTED]
    text = listed(f"{what} {about(ns)}" for what, ns in largest if ns >= PART_NAMED.share * max(e.why.excess_ns, 1))
    more = "" if e.between else " more"
    around = f", mainly in `{short_range(e.why.range)}`" if e.why.range else ""
    return f"{text}{more}{around}"


def _interval(e: Episode) -> tuple[int | None, int | None]:
    """Between what the cost lies: two standard errors of the mean either side, and as much as two runs differ."""
    if len(e.excess) < 2:
        return None, None
    error = 2.0 * float(e.excess.std(ddof=1)) / float(np.sqrt(len(e.excess)) * max(float(e.excess.mean()), 1.0))
    factor = 1.0 + max(error, RUNS_DIFFER.share)
    return round(e.per_step_ns / factor), round(e.per_step_ns * factor)


#: Causes that come once, wherever they come; and those that warm up where they are in the first steps alone.
_ONCE = ("compile", "trial")
_AT_FIRST = ("allocator", "host", "sync", "slower kernels", "communication")


def warms_up(e: Episode) -> bool:
    """Whether it is compiling or trying out, or the first steps of the capture are longer for no other reason.

    That input is late there has to be recorded: before its first batches a program does much else.
    """
    at_first = e.cause in _AT_FIRST or (e.cause == "input" and not e.why.recorded)
    return e.cause in _ONCE or (at_first and e.first and not e.every)
