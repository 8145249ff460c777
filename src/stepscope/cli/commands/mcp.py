"""A server for agents: the same questions as tools of the Model Context Protocol (MCP).

An agent starts it, and talks to it over standard input and output, once it is told to: `claude mcp add stepscope --
stepscope mcp --root traces`. With --http it waits for agents at an address of this machine instead, and answers only
those that send the token that it prints. Its tools are stepscope_open, _list, _describe, _run (every analysis), _diff,
_hang and _sql. They read files below the folders given with --root and nothing else, and write nothing but stepscope's
cache. docs/agents.md has the settings of other agents, and what each tool answers. It needs the extra `agent`; if it is
missing, the command says how to install it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import click

from stepscope.cli.declare import command_of
from stepscope.cli.shared import Labels, Memory, Nsys, Taxonomy
from stepscope.errors import BadInput, extra
from stepscope.model.option import Shell

if TYPE_CHECKING:
    from stepscope.agent.server import Server

_HOST = "127.0.0.1"


def _mcp(
    *,
    root: Annotated[
        tuple[str, ...],
        "Files below it may be read; may be repeated. Default: the current folder.",
        Shell(metavar="FOLDER"),
    ] = (),
    http: Annotated[bool, "Wait for agents over HTTP; prints an address and a token."] = False,
    host: Annotated[str, "Where to listen, with --http: this machine alone.", Shell(metavar="ADDRESS")] = _HOST,
    port: Annotated[int, "With --http; 0 is any port that is free.", Shell(metavar="N", between=(0, 65535))] = 0,
    nsys: Nsys = None,
    taxonomy: Taxonomy = None,
    labels: Labels = None,
    memory: Memory = None,
) -> None:
    try:
        from stepscope.agent.server import server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("mcp", "mcp_types", "pydantic"):
            raise
        raise BadInput("mcp needs the MCP SDK", extra("agent")) from None
    from stepscope.agent.memory import settle
    from stepscope.agent.roots import Roots
    from stepscope.agent.stdio import ending_on_signals

    if not http and (host != _HOST or port):
        raise BadInput("--host and --port are for a server over HTTP", "also give --http")
    made = server(Roots(root), nsys=nsys, taxonomy=taxonomy, labels=labels, jobs=None)
    settle()
    if http:
        _over_http(made, host, port)
        return
    if sys.stdin.isatty():
        print("stepscope: waiting for an agent on standard input; Ctrl-C ends it. See docs/agents.md", file=sys.stderr)
    with ending_on_signals():
        made.run("stdio")


def _over_http(made: Server, host: str, port: int) -> None:
    from stepscope.agent.http import Application
    from stepscope.agent.stdio import leave_soon
    from stepscope.web.run import Where, serve_calls

    where = Where(host, port)
    if not where.loopback:
        click.echo("stepscope: others in the network can reach it; the token below lets them in", err=True)
    app = Application(made, host)

    def signalled(number: int) -> None:
        app.end()
        leave_soon(number)

    serve_calls(app, where, _announce, signalled)


def _announce(address: str, token: str) -> None:
    from stepscope.agent.http import PATH

    click.echo(f"{address}{PATH}\nAuthorization: Bearer {token}")
    sys.stdout.flush()
    click.echo("give both to the agent (docs/agents.md); Ctrl-C stops the server", err=True)


command = command_of(_mcp)
