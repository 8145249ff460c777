"""Command lines in texts: would the program understand them?"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click

from stepscope.cli.main import cli


def parse(line: str) -> click.Context:
    """The context of the command that `line` runs: fails on what the command line would refuse."""
    program, *arguments = shlex.split(line, comments=True)
    assert program == "stepscope"
    command: click.Command = cli
    context, name = click.Context(cli, info_name=program), program
    while isinstance(command, click.Group):
        if not arguments:
            raise click.UsageError("no command")
        name = arguments.pop(0)
        found = command.get_command(context, name)
        if found is None:
            raise click.UsageError(f"no command {name}")
        command = found
    return command.make_context(name, arguments, parent=context)


def every_option() -> set[str]:
    """All options of all commands."""
    return {o for command in every_command() for p in command.params for o in (*p.opts, *p.secondary_opts)}


def every_command() -> Iterator[click.Command]:
    context = click.Context(cli)
    stack = [cli.get_command(context, name) for name in cli.list_commands(context)]
    while stack:
        command = stack.pop()
        assert command is not None
        yield command
        if isinstance(command, click.Group):
            stack += [command.get_command(context, name) for name in command.list_commands(context)]
