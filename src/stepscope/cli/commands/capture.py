"""Capture a profile worth analysing: plan it, run it, check the machine before and the result after.

docs/capture.md is a guide.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

import click

from stepscope.cli.complete import completing
from stepscope.cli.suggest import Suggesting

PARTS = ("plan", "run", "ncu", "nccl", "hang", "merge", "doctor", "verify")


def _question(name: str) -> str:
    """The first line of its file: listing the parts must not import them."""
    source = Path(__file__).with_name(f"_capture_{name}.py").read_text("utf-8")
    return source.removeprefix('"""').partition("\n")[0]


class _Parts(Suggesting):
    """Each command is a file of its own, imported when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(PARTS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in PARTS:
            return None
        command = import_module(f"stepscope.cli.commands._capture_{cmd_name}").command
        assert isinstance(command, click.Command)
        return completing(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _question(name)) for name in PARTS])


command = _Parts("capture", help=inspect.cleandoc(__doc__ or ""), no_args_is_help=True)
