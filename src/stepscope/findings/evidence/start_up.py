"""When the start-up of a capture without steps is over."""

from __future__ import annotations

from stepscope.derive.rank.data import RankData
from stepscope.derive.run.account import rank_run
from stepscope.derive.run.contents import loading_ns
from stepscope.derive.windows.window import Window
from stepscope.intervals import Spans
from stepscope.model.threshold import Threshold

STARTS_UP = Threshold(
    10.0,
    "% of the capture",
    "weights that are uploaded, memory and code before the first kernels make figures of a capture those of start-up",
    ("public/a100_lm2.7b_nvtx.sqlite", "tests/findings/test_run_findings.py"),
)


def started(data: RankData, window: Window) -> int:
    """When start-up is over in a capture without steps, if it takes a share of it; 0 elsewhere: nothing starts up."""
    run = rank_run(data) if window.kind == "capture" else None
    if run is None or run.label or run.startup.length() <= STARTS_UP.share * (run.end - run.begin):
        return 0
    return int(run.startup.end[-1]) if data.once(_loads_at_first) else 0


def start_up(data: RankData, window: Window) -> Spans:
    """The part of a window that is start-up."""
    run = rank_run(data)
    if run is None or window.gpu_start_ns is None or window.gpu_end_ns is None:
        return Spans.empty()
    if started(data, window) <= window.gpu_start_ns:
        return Spans.empty()
    return run.startup.clip(window.gpu_start_ns, window.gpu_end_ns)


def loads(data: RankData, spans: Spans) -> bool:
    """Whether these stretches are start-up: memory, code or weights are loaded, or nothing runs on the GPU at all.

    Else they are gaps like others, for all that is known.
    """
    return not data.is_kernel.any() or loading_ns(data, spans) >= STARTS_UP.share * spans.length()


def _loads_at_first(data: RankData) -> bool:
    run = rank_run(data)
    if run is None:
        return False
    on_gpu = run.startup.clip(int(data.start.min()), run.end) if len(data.start) else run.startup
    return loads(data, on_gpu)  # what the program does before it first uses the GPU is in no window
