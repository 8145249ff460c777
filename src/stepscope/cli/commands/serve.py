"""Whole traces in the browser: every rank and stream at every zoom, spans with their sums, launches, counters.

Prints an address that only you have: it carries a token, and the server listens on this machine alone. The page gets
what a view shows, by level of detail, so that millions of ops open at once. Select a stretch of time for its breakdown,
overlap and top kernels, as the commands print them. docs/serve.md describes it. It needs the extra `web`; if it is
missing, the command says how to install it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import click

from stepscope.cli import progress
from stepscope.cli.declare import command_of
from stepscope.cli.shared import Profiles, Reading
from stepscope.errors import BadInput, extra
from stepscope.model.option import Shell

if TYPE_CHECKING:
    from stepscope.web.scene import Served

_IDLE_MINUTES = 60


def _serve(
    profile: Profiles,
    *,
    beside: Annotated[
        tuple[str, ...],
        "A second run, drawn beside the first with its steps aligned (repeat it for several files).",
        Shell(metavar="PROFILE"),
    ] = (),
    host: Annotated[str, "Where to listen: this machine alone.", Shell(metavar="ADDRESS")] = "127.0.0.1",
    port: Annotated[int, "0 is any port that is free.", Shell(metavar="N", between=(0, 65535))] = 0,
    idle: Annotated[
        float, "Stop when nobody has asked for this long; 0: never.", Shell(metavar="MINUTES", between=(0, None))
    ] = _IDLE_MINUTES,
    browse: Annotated[bool, "Also open the browser.", Shell(flags=("--open",))] = False,
    reading: Reading,
) -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise BadInput("serve needs Starlette and uvicorn", extra("web")) from None
    from stepscope.web.answers import Answers
    from stepscope.web.run import Where, listening, serve

    where = Where(host, port)
    if port:
        listening(where).close()  # before any work is done
    with progress.shown():
        scenes = [_opened(profile, reading)]
        if beside:
            scenes.append(_opened(beside, reading))
        answers = Answers(scenes)
    answers.conclude()
    if not where.loopback:
        click.echo("stepscope: others in the network can reach it; the address below lets them in", err=True)
    if serve(answers, where, 60 * idle, lambda address: _announce(address, browse)):
        click.echo(f"nobody asked for {idle:g} minutes: stopped", err=True)


def _opened(paths: tuple[str, ...], reading: Reading) -> Served:
    from stepscope import questions
    from stepscope.web.scene import scene_of

    opened = reading.open(paths)
    questions.need_timeline(opened, "serve")
    return scene_of(opened, paths)


def _announce(address: str, browse: bool) -> None:
    progress.echo(f"{address}\n")
    click.echo("open it in a browser; Ctrl-C stops the server", err=True)
    if browse:
        import webbrowser

        webbrowser.open(address)


command = command_of(_serve)
