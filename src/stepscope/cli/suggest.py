"""What somebody meant who wrote a command or an option that is not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from stepscope.errors import meant

#: What other tools call an option, or what its value is here.
OPTIONS_ELSEWHERE = {
    "--json": "--format json",
    "--csv": "--format csv",
    "--markdown": "--format md",
    "--window": "--index N",
    "--limit": "--top N",
}


class Suggesting(click.Group):
    """A group that says what a word that is none of its commands may have meant: only where it is close."""

    #: What else the word is not, where it could have been something else.
    neither = ""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        name = args[0]
        commands = self.list_commands(ctx)
        if not name.startswith("-") and name not in commands and not ctx.resilient_parsing:
            close = self.elsewhere(name) or _sentence(meant(name, [*commands, *self.others()]))
            ctx.fail(f"No such command {name!r}{self.neither}. {close}")
        return super().resolve_command(ctx, args)

    def elsewhere(self, name: str) -> str | None:
        """A sentence on a word that is known by another name."""
        return None

    def others(self) -> list[str]:
        """What may stand in the place of a command."""
        return []


def no_option(error: click.NoSuchOption) -> str:
    """The error, with an option that is close. Click suggests whatever is a little alike."""
    context = error.ctx
    params = context.command.get_params(context) if context is not None else []
    options = [o for p in params for o in (*p.opts, *p.secondary_opts) if o.startswith("--")]
    other = OPTIONS_ELSEWHERE.get(error.option_name, "")
    if other.split(" ")[0] in options:
        return f"{error.message} Did you mean {other}?"
    return f"{error.message} {_sentence(meant(error.option_name, options))}"


def asked_of(group: click.Group, arguments: Sequence[str]) -> str:
    """The command of a line, for errors that do not say which it was: an option at the end without its value."""
    words, found, context = ["stepscope"], group, click.Context(group)
    for word in arguments:
        command = found.get_command(context, word) if word in found.list_commands(context) else None
        if command is None:
            break
        words.append(word)
        if not isinstance(command, click.Group):
            break
        found = command
    return " ".join(words)


def _sentence(text: str | None) -> str:
    return text[0].upper() + text[1:] if text else ""
