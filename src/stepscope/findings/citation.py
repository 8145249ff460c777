"""The command line that a finding cites: about the same window and the same ranks as the finding."""

from __future__ import annotations

import shlex

from stepscope.derive.rank.data import ranks_of
from stepscope.derive.windows.steps import marks_of
from stepscope.findings.case import Case
from stepscope.findings.finding import Finding
from stepscope.model.command_line import command_line
from stepscope.model.heading import numbers
from stepscope.model.ranks import ranks_text

#: Commands that look at a chunk, or at the whole capture, unless they are asked for the step.
NOT_THE_STEP = ("collectives", "exposed", "overlap", "streams", "window")
#: Commands that always look at the whole capture.
NO_WINDOW = ("clocks", "info", "memory", "mesh", "roofline", "run", "setup", "stragglers")
#: Commands with `--align`.
ALIGNED = ("collectives", "critical-path", "mesh", "stragglers", "timeline")


def cited(case: Case, finding: Finding) -> str:
    """`stepscope overlap PROFILE --by purpose --step`: `finding.for_profile` puts the files in, as users named them."""
    name, text = finding.command
    options = shlex.split(text)
    index = None
    if "--rank" in options and finding.index is None:
        at = options.index("--rank")
        among = {case.windows[r].index for r in numbers(options[at + 1]) if r in case.windows}
        if len(among) == 1:
            index = among.pop()
        else:  # the step has no one index on them: of all ranks it is found by its label
            del options[at : at + 2]
    if index is None and "--rank" not in options and case.profile.limited_to is not None:
        options += ["--rank", ranks_text(case.profile.limited_to)]
    if name in ALIGNED and case.align != "auto":
        options += ["--align", case.align]
    if name not in NO_WINDOW:
        options += _window(case, name, index) if finding.index is None else _step(case, name, finding.index)
    return command_line(name, "PROFILE", *options)


def _step(case: Case, name: str, index: int) -> list[str]:
    """Another step than the one that is looked at."""
    return [*["--step"] * (name in NOT_THE_STEP and case.once(_marked)), "--index", str(index)]


def _window(case: Case, name: str, index: int | None) -> list[str]:
    """The window of the case as options. With `--rank`, the step that all ranks agreed on has to be named: `index`."""
    spec = case.spec
    if spec.start is not None:
        return spec.times()
    if spec.whole:
        return ["--whole"]
    options = []
    if spec.anchor is not None:
        options += ["--anchor", spec.anchor]
    elif spec.unit == "chunk":
        options += ["--chunk"]
    elif name in NOT_THE_STEP and case.once(_marked):
        options += ["--whole" if case.kind == "capture" else "--step"]
    options += ["--period"] * spec.period
    agreed = spec.label is not None or spec.match
    if index is not None and agreed and case.kind != "capture":
        return [*options, "--index", str(index)]
    options += ["--match"] * spec.match
    return options if spec.index == "median" else [*options, "--index", str(spec.index)]


def _marked(case: Case) -> bool:
    """Whether ranges mark steps or chunks; else every window is the capture."""
    return any(marks_of(d).steps is not None or marks_of(d).chunks is not None for d in ranks_of(case.profile))
