"""Whole traces in the browser: every rank and stream at every zoom, spans with their sums, launches, counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from stepscope.cli import progress
from stepscope.cli.analysis import profile_argument, reading_options
from stepscope.errors import BadInput, extra

if TYPE_CHECKING:
    from stepscope.web.scene import Scene

_IDLE_MINUTES = 60


def _serve(profile: tuple[str, ...], **given: Any) -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise BadInput("serve needs Starlette and uvicorn", extra("web")) from None
    from stepscope.web.answers import Answers
    from stepscope.web.run import Where, listening, serve

    where = Where(given["host"], given["port"])
    if given["port"]:
        listening(where).close()  # before any work is done
    with progress.shown():
        scenes = [_opened(profile, given)]
        if given["beside"]:
            scenes.append(_opened(given["beside"], given))
        answers = Answers(scenes)
    answers.conclude()
    if not where.loopback:
        click.echo("stepscope: others in the network can reach it; the address below lets them in", err=True)
    if serve(answers, where, 60 * given["idle"], lambda address: _announce(address, given["browse"])):
        click.echo(f"nobody asked for {given['idle']:g} minutes: stopped", err=True)


def _opened(paths: tuple[str, ...], given: dict[str, Any]) -> Scene:
    from stepscope import api, questions
    from stepscope.web.scene import scene_of

    rules = {k: given[k] for k in ("nsys", "taxonomy", "labels")}
    opened = api.open(*paths, cache=not given["no_cache"], **rules)
    questions.need_timeline(opened, "serve")
    return scene_of(opened, paths)


def _announce(address: str, browse: bool) -> None:
    progress.echo(f"{address}\n")
    click.echo("open it in a browser; Ctrl-C stops the server", err=True)
    if browse:
        import webbrowser

        webbrowser.open(address)


command = click.Command(
    "serve",
    callback=_serve,
    params=[
        profile_argument(),
        click.Option(
            ["--beside"],
            multiple=True,
            metavar="PROFILE",
            help="A second run, drawn beside the first with its steps aligned (repeat it for several files).",
        ),
        click.Option(["--host"], default="127.0.0.1", metavar="ADDRESS", help="Where to listen: this machine alone."),
        click.Option(
            ["--port"], type=click.IntRange(0, 65535), default=0, metavar="N", help="0 is any port that is free."
        ),
        click.Option(
            ["--idle"],
            type=click.FloatRange(0),
            default=_IDLE_MINUTES,
            metavar="MINUTES",
            help="Stop when nobody has asked for so long; 0 never does.",
        ),
        click.Option(["--open", "browse"], is_flag=True, help="Open the browser, too."),
        *reading_options(),
    ],
    help="Whole traces in the browser: every rank and stream at every zoom, spans with their sums, launches, counters."
    "\n\nPrints an address that only you have: it carries a token, and the server listens on this machine alone. The "
    "page gets what a view shows, by level of detail, so that millions of ops open at once. Select a stretch of time "
    "for its breakdown, overlap and top kernels, as the commands print them. docs/serve.md describes it. It needs the "
    "extra `web` (pip install 'stepscope[web]').",
    context_settings={"show_default": True},
)
