"""Command lines in texts: would the program understand them?"""

from __future__ import annotations

import shlex

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
