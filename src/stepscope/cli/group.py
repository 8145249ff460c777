"""The commands in their groups. Listing them reads first lines of files; only the command that runs is imported."""

from __future__ import annotations

import gc
import re
import shlex
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepscope import questions
from stepscope.cli.complete import completing
from stepscope.cli.suggest import Suggesting
from stepscope.errors import BadInput
from stepscope.files.skill_files import SKILLS

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Commands that are not questions of one profile, by the group of the help that they stand in after the questions.
OWN: dict[str, tuple[str, ...]] = {
    "As nsys does": ("stats", "rules", "recipe"),
    "Conclude": ("compare", "gate", "hang", "report", "serve"),
    "Capture": ("capture",),
    "Your own": ("sql",),
    "Agents": ("skill", "mcp"),
    "Data": ("export", "simulate", "demo"),
}
#: The groups in the order of the help.
ORDER = (
    "Look",
    "One rank",
    "All ranks",
    "One kernel",
    "As nsys does",
    "Conclude",
    "Your own",
    "Capture",
    "Agents",
    "Data",
)

#: What to begin with.
START = {
    "PROFILE": "A profile alone: a short diagnosis, and what else to ask.",
    "demo": "A tour on a simulated job.",
    "capture run": "Profile a training script as it is: `stepscope capture run -- python train.py`.",
    "report": "All of it as one page, with a timeline.",
    "compare": "Did my change help?",
}

#: Commands that have commands of their own.
GROUPS = ("capture", "skill")
#: What other tools call it.
ELSEWHERE = {
    "analyze": "rules",
    "analyse": "rules",
    "diff": "compare",
    "profile": "capture run",
    "record": "capture run",
}

_OWN = Path(__file__).parent / "commands"


class Commands(Suggesting):
    """Every question, and every command that is a file in `cli/commands`."""

    neither = ", and no such file"

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for _, names in grouped() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        with _uncollected():
            return self._command(cmd_name)

    def _command(self, cmd_name: str) -> click.Command | None:
        if cmd_name in own_commands():
            command = import_module(f"stepscope.cli.commands.{cmd_name.replace('-', '_')}").command
            assert isinstance(command, click.Command)
            return completing(command)
        if cmd_name in questions.names():
            from stepscope.cli.analysis import command_of

            return completing(command_of(cmd_name))
        return None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        """The command; a profile in its place is diagnosed in short."""
        if args[0] not in self.list_commands(ctx) and _is_profile(args[0]):
            self._refuse_reversed(ctx, args)
            return "", import_module("stepscope.cli.commands._first_look").command, args
        return super().resolve_command(ctx, args)

    def _refuse_reversed(self, ctx: click.Context, args: list[str]) -> None:
        commands = self.list_commands(ctx)
        for word in args[1:]:
            if word in commands and not Path(word).exists():
                line = shlex.join(["stepscope", word, *(other for other in args if other != word)])
                raise BadInput("the command comes first", line)

    def elsewhere(self, name: str) -> str | None:
        context = click.Context(self)
        parts = {
            part: f"{group} {part}"
            for group in GROUPS
            if isinstance(found := self.get_command(context, group), click.Group)
            for part in found.list_commands(context)
        }
        command = ELSEWHERE.get(name) or parts.get(name)
        return f"Did you mean {command}?" if command else None

    def others(self) -> list[str]:
        """A profile: a short diagnosis of it."""
        try:
            return [entry.name for entry in Path().iterdir() if not entry.name.startswith(".")]
        except OSError:
            return []

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Start here"):
            formatter.write_dl([(name.ljust(_widest()), why) for name, why in START.items()])
        for title, names in grouped():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(_widest()), question(name)) for name in names])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text("Agents: read the skills first (`stepscope skill list`). They are in")
            formatter.write(f"  {SKILLS}\n")  # never wrapped: a path is to be copied


def _is_profile(word: str) -> bool:
    """Whether a word names files, or is a pattern of some, or looks so much like a file that it is missing."""
    return (
        Path(word).exists() or any(mark in word for mark in "*/") or word.endswith((".sqlite", ".nsys-rep", ".json.gz"))
    )


@contextmanager
def _uncollected() -> Iterator[None]:
    """Modules are not garbage, and every collection would look at all of them: it waits until they are loaded."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def grouped() -> Iterator[tuple[str, list[str]]]:
    """The groups with their commands."""
    for title in ORDER:
        asked = [module.rsplit(".", 1)[1].replace("_", "-") for module in questions.GROUPS.get(title, ())]
        yield title, [*asked, *OWN.get(title, ())]


@cache
def own_commands() -> tuple[str, ...]:
    """Commands that are not questions: one file each."""
    return tuple(name for group in OWN.values() for name in group)


def question(name: str) -> str:
    """The line that stands beside the command in the help."""
    if name not in own_commands():
        return questions.question(name)
    source = (_OWN / f"{name.replace('-', '_')}.py").read_text("utf-8")
    match = re.match(r'\s*"""(.*?)(?:\n|""")', source)
    return match[1].strip() if match else ""


@cache
def _widest() -> int:
    """One column of names for all groups."""
    return max(len(n) for _, names in grouped() for n in names)
