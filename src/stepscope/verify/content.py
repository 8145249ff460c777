"""What is in it: kernels, ranges, sane times, a bearable size, and a step that profiling did not change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stepscope.capture import step_times
from stepscope.capture.size import show_size
from stepscope.derive.rank.data import RankData
from stepscope.derive.rank.recorded import recorded
from stepscope.model.capturing import capture_by, capture_with
from stepscope.model.ranks import ranks_text
from stepscope.model.threshold import Threshold
from stepscope.model.units import about
from stepscope.verify.check import FAILED, OK, SKIPPED, WARNING, Check

_SLOWER = Threshold(
    10.0,
    "% of the unprofiled step",
    "nsys costs less in a step that the GPU fills; more distorts what is measured",
    ("tests/capture/test_verify.py",),
)


def kernels(data: list[RankData], gpu: bool) -> Check:
    if not gpu and not any(len(d.start) for d in data):
        return Check("kernels", SKIPPED, "", "the machine had no GPU: the capture is of the host", "")
    counts = {d.rank: int(d.is_kernel.sum()) for d in data}
    none = [r for r, n in counts.items() if n == 0]
    counted = _of_each(counts)
    fix = f"{capture_with()} while the GPU works" if none else ""
    return Check("kernels", FAILED if none else OK, ranks_text(none), counted, "on every rank", fix)


def ranges(data: list[RankData]) -> Check:
    counts = {d.rank: len(d.own_ranges) for d in data}
    none = [r for r, n in counts.items() if n == 0]
    counted = _of_each(counts)
    fix = capture_by("--ranges phases") if none else ""
    return Check("ranges", FAILED if none else OK, ranks_text(none), counted, "on every rank", fix)


def _of_each(counts: dict[int, int]) -> str:
    """`248 per rank`, or `202 to 715 per rank`."""
    least, most = min(counts.values(), default=0), max(counts.values(), default=0)
    return f"{least if least == most else f'{least} to {most}'} per rank"


def clock(data: list[RankData]) -> Check:
    """Ops start after they were launched."""
    counts = {d.rank: recorded(d) for d in data}
    if not any(c.linked for c in counts.values()):
        return Check("clock", SKIPPED, "", "no op is linked to its launch", "")
    wrong = {rank: c.early for rank, c in counts.items() if c.clock_is_wrong}
    order = f"{sum(wrong.values())} ops start before their launch" if wrong else "in order"
    fix = "an old driver or a virtual machine's clock: another node, or a newer profiler" if wrong else ""
    return Check("clock", FAILED if wrong else OK, ranks_text(wrong), order, "launch, then start", fix)


def size(files: list[Path], most: int) -> Check:
    sizes = {f: f.stat().st_size if f.is_file() else sum(p.stat().st_size for p in f.rglob("*")) for f in files}
    largest = max(sizes.values(), default=0)
    sizes_text = f"{show_size(largest)}{f' for the largest of {len(sizes)} files' * (len(sizes) > 1)}"
    fix = "fewer steps or micro-batches, or one report per rank (stepscope capture plan)" if largest > most else ""
    return Check("size", FAILED if largest > most else OK, "", sizes_text, f"at most {show_size(most)}", fix)


def slowdown(
    profiled_ns: float | None,
    unprofiled_ns: float | None,
    profiled: Sequence[float] = (),
    unprofiled: Sequence[float] = (),
) -> Check:
    """The recorded steps against unprofiled ones: of the same run, or of another. Single steps tell by their spread."""
    most = 1 + _SLOWER.share
    expected = f"below {most:g} times an unprofiled step"
    ratio = step_times.slowdown(profiled_ns, unprofiled_ns)
    if ratio is None:
        why = "no times of unprofiled steps after the first two (a manifest of capture run has them)"
        return Check("slowdown", SKIPPED, "", why, expected)
    within = step_times.slowdown_range(profiled, unprofiled)
    if within is not None and within[0] < most < within[1] and within[1] - within[0] > 2 * (most - 1):
        ratio_text = f"{ratio:.2f} times, but {within[0]:.1f} to {within[1]:.1f} is as likely"
        ratio_text += f": unprofiled steps take {about(min(unprofiled))} to {about(max(unprofiled))}"
        fix = "record more steps (--steps) after more warm-up: so few cannot tell the profiler's cost from their spread"
        return Check("slowdown", WARNING, "", ratio_text, expected, fix)
    fix = "shares still hold, absolute times do not: trace less (no OS runtime, no stacks)" if ratio > most else ""
    return Check("slowdown", WARNING if ratio > most else OK, "", f"{ratio:.2f} times", expected, fix)
