"""A server for agents: the same questions as tools of the Model Context Protocol (MCP)."""

from __future__ import annotations

import sys

import click

from stepscope.cli.analysis import labels_option
from stepscope.cli.memory import memory_option
from stepscope.errors import BadInput, extra

DESCRIPTION = """A server for agents: the same questions as tools of the Model Context Protocol (MCP).

An agent starts it, and talks to it over standard input and output, once it is told to: `claude mcp add stepscope --
stepscope mcp --root traces`. Six tools: stepscope_open, _list, _describe, _run (every analysis), _diff and _sql. They
read files below the folders given with --root and nothing else, and write nothing but stepscope's cache.
docs/agents.md has the settings of other agents, and what each tool answers. It needs the extra `agent` (pip install
'stepscope[agent]')."""


def _serve(root: tuple[str, ...], nsys: str | None, taxonomy: str | None, labels: str | None) -> None:
    try:
        from stepscope.agent.server import server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("mcp", "mcp_types", "pydantic"):
            raise
        raise BadInput("mcp needs the MCP SDK", extra("agent")) from None
    from stepscope.agent.memory import settle
    from stepscope.agent.roots import Roots
    from stepscope.agent.stdio import ending_on_signals

    made = server(Roots(root), nsys=nsys, taxonomy=taxonomy, labels=labels, jobs=None)
    if sys.stdin.isatty():
        print("stepscope: waiting for an agent on standard input; Ctrl-C ends it. See docs/agents.md", file=sys.stderr)
    settle()
    with ending_on_signals():
        made.run("stdio")


command = click.Command(
    "mcp",
    callback=_serve,
    help=DESCRIPTION,
    params=[
        click.Option(
            ["--root"],
            multiple=True,
            metavar="FOLDER",
            help="Files below it may be read; may be repeated. Default: the current folder.",
        ),
        click.Option(["--nsys"], metavar="PATH", help="The nsys that exports .nsys-rep files."),
        click.Option(["--taxonomy"], metavar="FILE", help="More rules for what is communication (TOML)."),
        labels_option(),
        memory_option(),
    ],
)
