"""What a shell completes beyond commands and options: files, and the names that options and arguments take.

Files are left to the shell itself, which knows about `~`, quotes and folders. Names come from whoever owns them, and
are imported only when a shell asks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial

import click
from click.shell_completion import CompletionItem

Names = Callable[[], Iterable[str]]
Completer = Callable[[click.Parameter, click.Context, str], list[CompletionItem]]

#: Click's variable for shell completion.
COMPLETE = "_STEPSCOPE_COMPLETE"
#: How a parameter that names a file or a folder is shown in the help.
_FILES = ("PROFILE", "BASE", "NEW", "FILE", "PATH", "SNAPSHOT", "SIZE|SNAPSHOT")
_FOLDERS = ("DIR",)


def _reports() -> Iterable[str]:
    from stepscope.nsys.reports.registry import reports

    return reports()


def _rules() -> Iterable[str]:
    from stepscope.nsys.reports.registry import all_rules

    return ("all", *all_rules())


def _recipes() -> Iterable[str]:
    from stepscope.nsys.recipes.registry import recipes

    return recipes()


def _findings() -> Iterable[str]:
    from stepscope.findings.registry import detectors

    return (d.id for d in detectors())


def _faults() -> Iterable[str]:
    from stepscope.simulate.job.faults import KNOWN

    return (f"{name}:" for name in KNOWN)


def _schedules() -> Iterable[str]:
    from stepscope.simulate.job.scenario import SCHEDULES

    return SCHEDULES


def _models() -> Iterable[str]:
    from stepscope.model.declared import names

    return names()


def _gpus() -> Iterable[str]:
    from stepscope.model.gpus import gpus

    return (gpu.name for gpu in gpus())


def _baselines() -> Iterable[str]:
    from stepscope.compare.baseline import saved

    return saved()


def _limits() -> Iterable[str]:
    from stepscope.compare.gate import limited

    return limited()


def _wants() -> Iterable[str]:
    from stepscope.model.capturing import WANTS

    return WANTS


def _skills() -> Iterable[str]:
    from stepscope.files.skill_files import names

    return names()


#: By command and parameter, what it may be. `*` is any command.
_NAMES: dict[tuple[str, str], Names] = {
    ("stats", "asked"): _reports,
    ("stats", "help_wanted"): _reports,
    ("rules", "asked"): _rules,
    ("rules", "help_wanted"): _rules,
    ("recipe", "asked"): _recipes,
    ("recipe", "recipe"): _recipes,
    ("recipe", "help_wanted"): _recipes,
    ("diagnose", "only"): _findings,
    ("diagnose", "fail_on"): _findings,
    ("critical-path", "what_if"): lambda: ("hide-comm", "even-rank", "host="),
    ("simulate", "fault"): _faults,
    ("simulate", "schedule"): _schedules,
    ("simulate", "write"): lambda: ("nsys", "kineto"),
    ("gate", "limit"): _limits,
    ("install", "name"): _skills,
    ("show", "name"): _skills,
    ("*", "index"): lambda: ("median", "all"),
    ("*", "wants"): _wants,
    ("*", "trigger"): lambda: ("cuda", "nvtx", "nvtx=", "time=", "none"),
    ("*", "ranges"): lambda: ("phases", "modules", "none"),
    ("*", "gpu"): _gpus,
}
#: A name or a file.
_NAMES_OR_FILES: dict[tuple[str, str], Names] = {
    ("*", "baseline"): _baselines,
    ("gate", "save"): _baselines,
    ("*", "model"): _models,
}


def completing(command: click.Command) -> click.Command:
    """`command`, whose parameters complete to what they take; those of its own commands too."""
    if isinstance(command, click.Group):
        for part in command.commands.values():
            completing(part)
    for param in command.params:
        if (completer := _completer(command.name or "", param)) is not None:
            param.shell_complete = partial(completer, param)  # type: ignore[method-assign]
    return command


def _completer(command: str, param: click.Parameter) -> Completer | None:
    keys = [(command, param.name or ""), ("*", param.name or "")]
    for key in keys:
        if key in _NAMES:
            return _named(_NAMES[key])
        if key in _NAMES_OR_FILES:
            return _named(_NAMES_OR_FILES[key], or_files=True)
    if isinstance(param, click.Argument) and param.type is click.UNPROCESSED:
        return _files  # a command to run
    shown = (param.metavar or "").strip("[]").split(".")[0].split(" ")[0]
    if shown in _FOLDERS:
        return _folders
    if shown in _FILES or param.name in ("against", "timeline", "to"):
        return _files
    return None


def _files(_: click.Parameter, __: click.Context, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def _folders(_: click.Parameter, __: click.Context, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]


def _named(names: Names, or_files: bool = False) -> Completer:
    """Names that begin so; of a list with commas, its last one."""

    def complete(param: click.Parameter, context: click.Context, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        if comma and os.environ.get(COMPLETE, "").startswith("fish"):
            return []  # click's function for fish cuts values at commas
        items = [CompletionItem(before + comma + name) for name in names() if name.startswith(last)]
        return items or (_files(param, context, incomplete) if or_files else [])

    return complete
