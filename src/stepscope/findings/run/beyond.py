"""Why a step is longer than its like: what it holds that they do not (semantics §18).

What is recorded comes first: a range around most of the excess, collections of garbage, files written, compilers, calls
that allocate. Then what follows by rule: many copies to the host are a checkpoint, kernels of the forward pass alone an
evaluation, kernels that run nowhere else are tried out. What nothing tells stays unknown.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.findings.run.inside import Inside
from stepscope.model.range_names import COMPILING, GARBAGE, INPUT_RANGE, TORCH_OP
from stepscope.model.threshold import Threshold

Cause = Literal[
    "checkpoint", "evaluation", "logging", "input", "gc", "allocator", "compile", "trial", "sync", "communication",
    "slower kernels", "work", "host",
]  # fmt: skip
_MOST = Threshold(
    50.0,
    "% of the excess",
    "a cause must account for most of it",
    ("tests/findings/test_run_findings.py",),
)
_TENSORS = Threshold(
    8,
    "tensors",
    "a checkpoint copies so many more to the host than a usual step",
    ("tests/findings/test_run_findings.py",),
)
_CHECKPOINT_BYTES = Threshold(
    4 << 20,
    "bytes",
    "and so many more bytes: a loss and a few metrics have less",
    ("tests/findings/test_run_findings.py",),
)
_NOT_RUN = Threshold(
    20.0,
    "% of the usual step's compute",
    "backward pass and optimizer, which an evaluation does not run, take more",
    ("tests/findings/test_run_findings.py",),
)
_ONLY_HERE = Threshold(
    25.0,
    "% of the compute beyond the usual step's",
    "of what it computes more, by kernels that run in no other step: algorithms are tried, code is warmed up",
    ("tests/findings/test_run_findings.py",),
)
_SEEN = Threshold(
    5.0,
    "% of the usual step's compute",
    "less than that is tried out nowhere: a metric or a norm has kernels of its own, too",
    ("tests/findings/test_run_findings.py",),
)
#: Ranges of torch ops, and those around steps: what is in them is in question.
_SAYS_NOTHING = rf"{TORCH_OP}|^(ProfilerStep|step ?)#"
#: What ranges around such things are called.
_NAMES: tuple[tuple[Cause, str], ...] = (
    ("gc", GARBAGE),
    ("checkpoint", r"(?i)checkpoint|ckpt|sav(e|ing)|state_dict|serializ|snapshot|upload"),
    ("evaluation", r"(?i)eval|valid|(^|[^a-z])test|sampl(e|ing)|generat|infer|predict|rollout|benchmark"),
    ("compile", COMPILING),
    ("input", INPUT_RANGE),
    ("logging", r"(?i)(^|[^a-z])log|wandb|tensorboard|metric|print|progress|report"),
)


class Beyond(Struct, frozen=True):
    """Why a stretch is longer than its like. `recorded`: the trace says so; else it is inferred by rule."""

    cause: Cause
    recorded: bool
    #: time more than in the usual step, by part; it sums to the excess
    extra: dict[str, int]
    #: the range that takes most of it
    range: str | None = None
    #: a loader is started anew in it: an epoch ends
    anew: bool = False

    @property
    def excess_ns(self) -> int:
        return sum(self.extra.values())


def beyond(long: Inside, usual: Inside, elsewhere: frozenset[int], step: Inside | None = None) -> Beyond:
    """Why `long` is longer than `usual`; kernels named `elsewhere` run in other steps, too.

    What lies between steps is beside nothing; what it runs, beside a usual `step`.
    """
    parts = dict.fromkeys((*long.made_of, *usual.made_of))
    extra = {what: long.made_of.get(what, 0) - usual.made_of.get(what, 0) for what in parts}
    excess = sum(extra.values())
    least = _MOST.share * excess
    text = _range(long, usual, least)
    anew = _loader_begins(long, usual)
    if text is not None and (named := _named(text)) is not None:
        return Beyond(named, True, extra, text, anew)
    cause, recorded = _recorded(long, usual, extra, least) or _inferred(long, usual, extra, least, elsewhere, step)
    return Beyond(cause, recorded, extra, text, anew)


def _range(long: Inside, usual: Inside, least: float) -> str | None:
    """The range that takes most of the excess, one that says what it is before others."""
    more = {text: ns - usual.ranges.get(text, 0) for text, ns in long.ranges.items()}
    enough = {text: ns for text, ns in more.items() if ns >= least and not _matches(text, _SAYS_NOTHING)}
    return max(enough, key=lambda text: (_named(text) is not None, enough[text], text), default=None)


def _named(text: str) -> Cause | None:
    return next((cause for cause, pattern in _NAMES if _matches(text, pattern)), None)


def _matches(text: str, pattern: str) -> bool:
    return bool(pl.Series([text]).str.contains(pattern)[0])


def _recorded(long: Inside, usual: Inside, extra: dict[str, int], least: float) -> tuple[Cause, bool] | None:
    if long.records("gc") - usual.records("gc") >= least:
        return "gc", True
    if long.writing - usual.writing >= least:
        return "checkpoint", True
    compiling = extra.get("compiling", 0) + extra.get("loading code", 0)
    if max(compiling, long.records("compile") - usual.records("compile")) >= least:
        return "compile", True
    allocating = max(long.allocating - usual.allocating, extra.get("allocating memory", 0))
    return ("allocator", True) if allocating >= least else None


def _inferred(
    long: Inside,
    usual: Inside,
    extra: dict[str, int],
    least: float,
    elsewhere: frozenset[int],
    step: Inside | None,
) -> tuple[Cause, bool]:
    beside = step or usual
    if _tries_out(long, beside, elsewhere, extra):
        return "trial", False
    computing = extra.get("compute", 0)
    if computing >= least or (computing > 0 and computing + _issuing(long, beside, extra) >= least):
        return _more_compute(long, beside, step is not None), False
    copies, size = (a - b for a, b in zip(long.to_host, usual.to_host, strict=True))
    if copies >= _TENSORS.count and size >= _CHECKPOINT_BYTES.count:
        return "checkpoint", False
    if extra.get("communication", 0) >= least:
        return "communication", True
    if extra.get("waiting for the GPU", 0) >= least:
        return "sync", True
    late = not _names_input(usual) and _ends_with_input(long)
    if extra.get("other host work", 0) >= least and (late or _loader_begins(long, usual)):
        return "input", False
    return "host", False


def _tries_out(long: Inside, usual: Inside, elsewhere: frozenset[int], extra: dict[str, int]) -> bool:
    """Whether many kernels run that no other step has; the host may take far longer than they, to build them."""
    only_here = long.kernels.filter(~pl.col("name").is_in(list(elsewhere)))
    more = max(extra.get("compute", 0), 0.0)
    if only_here.height < _TENSORS.count or not more:
        return False
    alone = float(only_here["ns"].sum())
    return alone >= _ONLY_HERE.share * more and alone >= _SEEN.share * float(usual.kernels["ns"].sum())


def _issuing(long: Inside, usual: Inside, extra: dict[str, int]) -> float:
    """Of the time in which the GPU idles more, what the host takes to launch more than in a usual step."""
    launches, more = (sum(of.launches.values()) for of in (usual, long))
    pace = usual.host.length() / max(launches, 1)
    idle = sum(max(extra.get(what, 0), 0) for what in ("other host work", "other CUDA calls", "queued work"))
    return min(float(idle), max(more - launches, 0) * pace)


def _loader_begins(long: Inside, usual: Inside) -> bool:
    """Whether a loader ends and is started anew: it is asked once more than usual, and for that, or a thread pins."""
    asked = long.entered(INPUT_RANGE) - usual.entered(INPUT_RANGE)
    return asked in (1, 2) or (long.threads_begun > 0 and not usual.threads_begun)


def _more_compute(long: Inside, usual: Inside, apart: bool) -> Cause:
    """Forward passes without backward passes, the same kernels at a lower speed, or other work.

    What runs `apart` from the step, between two of them, comes on top of it.
    """
    both = usual.kernels.join(long.kernels, on="name", how="full", suffix="_long", coalesce=True).fill_null(0)
    if apart:
        both = both.with_columns(pl.col("count_long") + pl.col("count"), pl.col("ns_long") + pl.col("ns"))
    more = both.filter(pl.col("count_long") > pl.col("count"))
    if not more.height:
        return "slower kernels"
    again = more.filter(pl.col("count") > 0)
    longer = more.select((pl.col("ns_long") - pl.col("ns")).sum()).item()
    repeated = again.select((pl.col("ns_long") - pl.col("ns")).sum()).item()
    as_before = float(both.filter(pl.col("count_long") == pl.col("count"))["ns"].sum())
    forward_alone = 2 * repeated >= longer and as_before >= _NOT_RUN.share * float(usual.kernels["ns"].sum())
    return "evaluation" if forward_alone and (apart or not _more_backward(long, usual)) else "work"


def _more_backward(long: Inside, usual: Inside) -> bool:
    """Whether threads beside the main one, which run backward passes, launch more, too."""
    if len(usual.launches) < 2:
        return False
    main = next(iter(usual.launches))
    beside = [sum(n for tid, n in of.launches.items() if tid != main) for of in (usual, long)]
    return beside[1] - beside[0] > 0.1 * (long.launches.get(main, 0) - usual.launches[main])


def _names_input(usual: Inside) -> bool:
    """Whether ranges say when the program gets its input: then the rest of its time is not that."""
    return any(_matches(text, INPUT_RANGE) for text in usual.ranges)


def _ends_with_input(long: Inside) -> bool:
    """Whether the longest time without GPU work ends with a copy from the host."""
    data, ops = long.data, np.sort(long.ops)
    if len(ops) < 2:
        return False
    reach = np.maximum.accumulate(np.r_[int(long.gpu.start[0]), data.end[ops]])[:-1]
    first = int(np.argmax(data.start[ops] - reach))
    return bool(data.ops["copy_kind"][int(ops[first])] == "HtoD")
