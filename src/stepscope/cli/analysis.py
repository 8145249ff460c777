"""The command of an analysis: its options from its signature, its help from its docstring."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from stepscope import api, questions
from stepscope.api.options import Ranked, Rows, Window, takes_profile
from stepscope.cli import progress
from stepscope.cli.declare import argument_of, option_of, options_of, sentence, taken
from stepscope.cli.shared import AnyProfiles, Output, Profiles, Reading, Workers
from stepscope.errors import GateFailed
from stepscope.model.option import Option


def command_of(name: str) -> click.Command:
    """The click command of the analysis `name`."""
    analysis = questions.get(name)
    groups: dict[str, type] = {"window": Window} if analysis.windowed else {}
    groups |= {"workers": Workers} if analysis.across else {}
    groups |= {"ranked": Ranked, "rows": Rows, "output": Output, "reading": Reading}
    body = inspect.cleandoc(analysis.doc).partition("\n")[2].strip()

    def callback(profile: tuple[str, ...], **given: Any) -> None:
        _ask(name, profile, given, {key: taken(group, given) for key, group in groups.items()})

    asked_of = Profiles if analysis.needs_profile else AnyProfiles
    return click.Command(
        name,
        callback=callback,
        params=[
            argument_of(Option.of("profile", asked_of, inspect.Parameter.empty)),
            *(option_of(replace(option, help=sentence(option.help))) for option in analysis.options),
            *(option for group in groups.values() for option in options_of(group)),
        ],
        help=f"{analysis.question}\n\n{body}",
        epilog=f"Columns: {', '.join(c.name for c in analysis.columns)}.",
        context_settings={"show_default": True},
    )


def _ask(name: str, paths: tuple[str, ...], own: dict[str, Any], shared: dict[str, Any]) -> None:
    target = shared["output"].target
    reading: Reading = shared["reading"]
    workers: dict[str, Any] = shared["workers"]._asdict() if "workers" in shared else {}
    with progress.shown():
        profile = reading.open(paths, **workers) if paths or questions.get(name).needs_profile else None
        target.spare([*map(Path, paths), *(profile.paths if profile is not None else ())])
        for option in questions.get(name).options:
            if takes_profile(option.type) and own[option.name] is not None:
                own[option.name] = reading.open([own[option.name]], **workers)
        try:
            result = api.analyse(profile, name, **own, **shared.get("window", {}), **shared["ranked"], **shared["rows"])
        except GateFailed as failed:
            if failed.result is not None:
                target.write(failed.result)
            raise
    target.write(result)
