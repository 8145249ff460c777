"""Some steps are far longer than their like: at random, or every so many steps.

Why is looked for inside those steps: garbage collection, memory released and allocated again, input that comes late, a
wait, a rank that is late, or a host that launches late. What it could save is what they take beyond the usual
step, over all steps of the run. Checkpoints, evaluations, epochs and warm-up have findings of their own.
"""

from __future__ import annotations

from stepscope.findings.case import Case
from stepscope.findings.evidence.episode import each, episode_finding, warms_up, when
from stepscope.findings.finding import Finding
from stepscope.findings.run.beyond import Cause
from stepscope.findings.run.episodes import Episode
from stepscope.model.capturing import capture_with
from stepscope.model.range_names import short_range

ID = "spikes"

#: What happens in them, and what to do about it.
_CAUSES: dict[Cause, tuple[str, str]] = {
    "gc": (
        "garbage collection stops the host for",
        "gc.freeze() after set-up, gc.disable() in the loop, and gc.collect() rarely and on all ranks at once",
    ),
    "allocator": (
        "memory is released and allocated again for",
        "do not call torch.cuda.empty_cache(); near the limit, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or "
        "less memory; keep shapes the same",
    ),
    "input": (
        "input comes late by",
        "more workers and a larger prefetch_factor, so that a slow batch does not reach the GPU",
    ),
    "sync": (
        "the host waits for the GPU, which costs",
        "find the call that waits there (`stepscope idle --by call`), and read values less often or later",
    ),
    "communication": (
        "communication takes longer by",
        "give the traces of all ranks: one of them is late, or the network is shared",
    ),
    "slower kernels": (
        "the same kernels take longer by",
        f"check clocks and other processes on the GPU ({capture_with('gpu-metrics')})",
    ),
    "host": (
        "the host does something else for",
        "find out what the program does there: name it with ranges; garbage collection (gc.callbacks), files, logging "
        f"and locks look like this. {capture_with('python-sampling')}",
    ),
}

#: Of steps of which only the time is known: within one, between two, and what to do.
_OF_A_LOG = (
    "the step is longer by",
    "the program does something else for",
    "record one of these steps: `capture run` with a --warmup that ends before it; checkpoints, evaluations and "
    "garbage collection look like this",
)


def detect(case: Case) -> list[Finding]:
    chosen = [e for e in case.episodes if e.cause in _CAUSES and not warms_up(e)]
    return [_finding(case, e) for e in chosen if not (e.cause == "input" and (e.every or e.between or e.why.anew))]


def _finding(case: Case, e: Episode) -> Finding:
    what, advice = _CAUSES[e.cause]
    if case.on_host and e.cause == "host":
        within, between, advice = _OF_A_LOG
        what = between if e.between else within
    inside = f" in `{short_range(e.why.range)}`" if e.cause == "host" and e.why.range else ""
    title = f"{what} {each(e)}{inside} {when(e)}{' between steps' * e.between}"
    return episode_finding(case, e, ID, title, advice, "possible" if e.cause == "host" else None)
