"""Runs the command that a finding cites, as a user would, and looks for the finding's figures in what it prints."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import click
import polars as pl

from stepscope import api
from stepscope.agent.options import call_of
from stepscope.cli.analysis import command_of
from stepscope.derive.windows.spec import WindowSpec
from stepscope.findings.case import Case
from stepscope.findings.citation import NO_WINDOW, cited
from stepscope.findings.diagnose import look
from stepscope.findings.finding import Finding
from stepscope.findings.text import of_window
from stepscope.model.result import Result
from stepscope.model.units import about

#: Findings whose time is that of kernels or transfers beside what they should take: figures are of both, or a part.
BY_COMPARISON = (
    "attention-by-hand",
    "below-roof",
    "casts-and-copies",
    "compute-imbalance",
    "expert-imbalance",
    "experts-one-by-one",
    "idle-device",
    "low-occupancy",
    "memory-layout",
    "no-tensor-cores",
    "odd-shapes",
    "pipeline-bubble",
    "recomputation",
    "slow-algorithms",
    "slow-indexing",
    "slow-link",
    "slow-loss",
    "slow-optimizer",
    "straggler",
    "unfused-kernels",
    "unused-forward",
    "unused-gradients",
)


@dataclass(frozen=True)
class Cited:
    """A finding, the window that it is about by rank, its command line, and what that answers."""

    finding: Finding
    windows: dict[int, tuple[int | None, int | None]]
    line: str
    answer: Result

    @property
    def wrong(self) -> list[str]:
        """What the command does not show."""
        f, found = self.finding, []
        if not f.figures:
            found.append("names no figure")
        found += [f"{x}: not in the evidence" for x in f.figures if not quoted(x, f.evidence)]
        found += [f"{x}: not printed" for x in f.figures if not printed(x, self.answer)]
        if f.id not in BY_COMPARISON and f.recoverable_ns > sum(f.figures):
            found.append(f"promises {about(f.recoverable_ns)}, more than its figures")
        if self.line.split()[1] not in NO_WINDOW:
            seen = {w["rank"]: (w["gpu_start_ns"], w["gpu_end_ns"]) for w in self.answer.window}
            ranks = [r for r in f.ranks or self.windows if r in seen]
            found += [] if ranks else ["shows none of its ranks"]
            found += [f"rank {r}: another window" for r in ranks if seen[r] != self.windows[r]]
        if called(self.line) != typed(self.line):
            found.append(f"its call for agents has {called(self.line)}")
        return [f"{f.id}: {self.line}: {text}; {f.evidence}" for text in found]


def every(profile: api.Profile, spec: WindowSpec | None = None) -> Iterator[Cited]:
    """All findings of a profile with what their commands answer."""
    case = Case(profile, spec or WindowSpec())
    for finding in look(case)[0]:
        line = cited(case, finding)
        shown = case if finding.index is None else Case(profile, WindowSpec(index=finding.index))
        windows = {r: (w.gpu_start_ns, w.gpu_end_ns) for r, w in shown.windows.items()}
        said = replace(finding, evidence=of_window(case, finding.evidence))  # as `diagnose` prints it
        yield Cited(said, windows, line, run(profile, line))


def run(profile: api.Profile, line: str) -> Result:
    """What a command line answers, its options read by the command line's own parser."""
    context = parsed(line)
    assert context.command.name is not None
    return api.analyse(profile, context.command.name, **{k: v for k, v in context.params.items() if k not in OURS})


#: Options of the command line that are none of the question.
OURS = ("profile", "format", "output", "no_cache", "nsys", "taxonomy", "labels", "jobs", "memory", "cluster")


def parsed(line: str) -> click.Context:
    _, name, *words = shlex.split(line)
    command = command_of(name)
    context = click.Context(command)
    command.parse_args(context, words)
    return context


def typed(line: str) -> dict[str, str]:
    """The options that a command line gives, by the command line's own parser."""
    context = parsed(line)
    usual = {p.name: p.default for p in context.command.params}
    given = {k: v for k, v in context.params.items() if k not in OURS and v not in (None, False, (), usual[k])}
    return {k: str(list(v) if isinstance(v, tuple) else v) for k, v in given.items()}


def called(line: str) -> dict[str, str]:
    """The same of the call that stands beside it for agents."""
    return {k: str(v) for k, v in call_of(line, "PROFILE")["arguments"]["options"].items()}


def quoted(figure: float, text: str) -> bool:
    """Whether a text has a figure as people read it."""
    return about(figure) in text or f"{figure:.0f} %" in text


def printed(figure: float, answer: Result) -> bool:
    """Whether a figure is in the rows or the summary, or is the sum of a column over the rows of a rank."""
    if figure == 0 or figure in _numbers(answer.summary):  # zero: there is no row
        return True
    table = answer.rows
    columns = [c for c in table.columns if table[c].dtype.is_numeric() and c not in ("rank", "pid")]
    sums = table.group_by("rank").agg(pl.col(columns).sum()) if "rank" in table.columns else table.clear()
    return any(figure in frame[c].to_list() for frame in (table, sums) for c in columns)


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value
