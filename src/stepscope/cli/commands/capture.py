"""Capture a profile worth analysing: plan it, run it, check the machine before and the result after."""

from __future__ import annotations

from importlib import import_module

import click

from stepscope.cli.complete import completing
from stepscope.cli.suggest import Suggesting

PARTS = {
    "plan": "World size, nodes, batch, steps and size of a capture, before it is run.",
    "run": "Run a training command under nsys or torch.profiler; export and verify what comes of it.",
    "ncu": "Measure with Nsight Compute the few kernels that a timeline made suspects.",
    "hang": "Make a job dumpable without edits; collect dumps and stacks of all ranks while it hangs.",
    "merge": "One folder of what the nodes and profilers of a job left in several.",
    "doctor": "What is missing before a capture can start, on every node of the allocation.",
    "verify": "Is a capture any good: all ranks, exactly the profiled steps, steady, nothing lost?",
}


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
            formatter.write_dl(list(PARTS.items()))


DESCRIPTION = """Capture a profile worth analysing: plan it, run it, check the machine before and the result after.

docs/capture.md is a guide."""

command = _Parts("capture", help=DESCRIPTION, no_args_is_help=True)
