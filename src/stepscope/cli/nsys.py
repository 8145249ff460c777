"""What `stats` and `rules` share: options spelled as nsys spells them, and where each answer goes."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepscope.cli import progress
from stepscope.cli.memory import memory_option
from stepscope.errors import BadInput, CannotAnswer
from stepscope.files import whole
from stepscope.model.visible import visible

if TYPE_CHECKING:
    from stepscope.nsys.reports import Answer
    from stepscope.nsys.reports.formats import Format
    from stepscope.nsys.reports.spec import Args, Report

#: Formats that stand under a title on a terminal.
_TITLED = ("column", "table")


@dataclass(frozen=True)
class Order:
    """One report to make: its text as asked for, how to show it, and where. `to` is `-`, `.`, `@command` or a base."""

    text: str
    report: Report
    args: Args
    format: Format
    to: str


def options(kind: str) -> list[click.Parameter]:
    """Options of `nsys stats` (kind `report`) and `nsys analyze` (kind `rule`)."""
    repeated: dict[str, Any] = {"multiple": True}
    compatible: dict[str, Any] = {"is_flag": False, "flag_value": "true", "hidden": True, "expose_value": False}
    return [
        click.Argument(["profile"], nargs=-1, metavar="PROFILE..."),
        click.Option(
            [f"-{kind[0]}", f"--{kind}", "asked"],
            **repeated,
            metavar="NAME[:ARG…][,NAME…]",
            help=f"What to show; --help-{kind}s lists them.",
        ),
        click.Option(
            ["-f", "--format", "formats"],
            **repeated,
            metavar="FORMAT[:ARG…][,…]",
            help="column, table, csv, tsv, json or md; one for all, or one each.",
        ),
        click.Option(
            ["-o", "--output", "outputs"],
            **repeated,
            metavar="-|.|BASE|@COMMAND[,…]",
            help="Standard output, files BASE_NAME.SUFFIX (. for the profile's own name), a command.",
        ),
        click.Option(["--timeunit"], metavar="UNIT", help="nsec, usec, msec or seconds."),
        click.Option(["--filter-time"], metavar="[START]/[END]", help="Only what overlaps this time, as in 1s/1500ms."),
        click.Option(
            ["--filter-nvtx"],
            metavar="NAME[@DOMAIN][/INDEX]",
            help="Only what overlaps this NVTX range, of its process or thread.",
        ),
        click.Option(
            ["--force-overwrite"],
            is_flag=False,
            flag_value="true",
            default="false",
            metavar="",
            help="Overwrite existing files.",
        ),
        click.Option(["-q", "--quiet"], is_flag=True, help="Say nothing about what is skipped."),
        click.Option(
            [f"--help-{kind}s", "help_wanted"],
            is_flag=False,
            flag_value="",
            metavar="[NAME|ALL]",
            help=f"List the {kind}s, or explain one.",
        ),
        click.Option(["--rank"], metavar="RANKS", help="Only these ranks: 0,3-5."),
        click.Option(["--no-cache"], is_flag=True, help="Read the files again, and cache nothing."),
        click.Option(["--nsys"], metavar="PATH", help="The nsys that exports .nsys-rep files."),
        memory_option(),
        click.Option(["--force-export"], **compatible),
    ]


def split(texts: Sequence[str]) -> list[str]:
    """Options may be repeated, and hold lists."""
    return [part for text in texts for part in text.split(",") if part]


def orders(asked: list[str], find: Callable[[str], tuple[Report, Args]], given: dict[str, Any]) -> list[Order]:
    """Reports with their formats and outputs: the last format and output serve all that follow."""
    from stepscope.nsys.reports.formats import parse_format
    from stepscope.nsys.reports.part import parse_span

    formats, outputs = split(given["formats"]), split(given["outputs"]) or ["-"]
    times: dict[str, int | str | None] = {}
    if given["filter_time"]:
        times["start"], times["end"] = parse_span(given["filter_time"])
    if given["filter_nvtx"]:  # as in nsys, it takes precedence
        times = {"start": None, "end": None, "nvtx": given["filter_nvtx"]}
    made = []
    for i, text in enumerate(asked):
        report, args = find(text)
        args.update({k: v for k, v in times.items() if args.get(k) is None})
        to = outputs[min(i, len(outputs) - 1)]
        name = formats[min(i, len(formats) - 1)] if formats else "."
        name = ("column" if to == "-" else "csv") if name == "." else name
        made.append(Order(text, report, args, parse_format(name, given["timeunit"]), to))
    return made


def run(paths: Sequence[str], asked: list[Order], given: dict[str, Any], said: Callable[[Order, Answer], str]) -> None:
    """Make every report. What a profile cannot answer is skipped with a line on stderr; nothing at all is a failure."""
    from stepscope import api, questions
    from stepscope.model.note import LEFT_OUT
    from stepscope.nsys.reports import Asker

    if not paths:
        raise click.UsageError("Missing argument 'PROFILE...'.")
    refused: list[CannotAnswer] = []
    with progress.shown():
        profile = api.open(*paths, cache=not given["no_cache"], nsys=given["nsys"])
        questions.need_timeline(profile, "nsys stats")
        if given["rank"]:
            profile = profile.view(api.parse_ranks(given["rank"]))  # type: ignore[assignment]
        asker = Asker(profile)
        for order in asked:
            try:
                answer = asker.ask(order.report, order.args)
            except CannotAnswer as error:
                refused.append(CannotAnswer(f"{order.text}: {error.message}", error.hint))
                continue
            text = said(order, answer)
            _deliver(order, text, profile.paths[0], given["force_overwrite"] == "true")
            if not text:
                _say(given, f"{order.text}: nothing to show")
            for note in answer.notes:
                _say(given, f"{order.text}: {note}")
    if refused and len(refused) == len(asked):
        raise refused[0]
    for note in profile.notes:
        if note.code in LEFT_OUT:  # rows that nsys counts; what it says of ranks and warnings is not of these reports
            _say(given, note)
    for reason in refused:
        _say(given, f"skipped {reason}")


def _say(given: dict[str, Any], text: str) -> None:
    if not given["quiet"]:
        print("stepscope:", visible(text), file=sys.stderr)


def text_of(order: Order, answer: Answer, advice: str = "") -> str:
    """An answer in the format asked for; Markdown has its title and advice in it."""
    if order.format.name == "md":
        from stepscope.render.nsys_markdown import to_markdown

        return to_markdown(answer, order.format, order.text, advice)
    from stepscope.nsys.reports.formats import render

    return render(answer, order.format)


def titled(order: Order, text: str, advice: str = "") -> str:
    """On a terminal the human-readable formats have a heading, as nsys's have."""
    if order.to != "-" or order.format.name not in _TITLED:
        return text
    return f"\n ** {order.report.title} ({order.text.partition(':')[0]}):\n\n{advice}{text}"


def _deliver(order: Order, text: str, profile: Path, overwrite: bool) -> None:
    if order.to == "-":
        progress.hide()
        click.echo(visible(text), nl=bool(text))
    elif order.to.startswith("@"):
        try:
            done = subprocess.run(shlex.split(order.to[1:]), input=text.encode(), check=False)
        except (OSError, ValueError) as error:
            raise BadInput(f"-o {order.to}: cannot run it ({error})", "give a command that reads a report") from None
        if done.returncode:
            raise BadInput(f"-o {order.to}: it failed, with status {done.returncode}", "mend it, or give a file")
    elif text:
        from stepscope.nsys.reports.formats import SUFFIXES

        base = profile.with_suffix("") if order.to == "." else Path(order.to)
        what = order.text.replace(":", "_").replace("=", "_").replace("/", "_")
        file = base.with_name(f"{base.name}_{what}{SUFFIXES[order.format.name]}")
        if file.exists() and not overwrite:
            raise BadInput(f"{file}: is there already", "add --force-overwrite, or name another -o")
        if not file.parent.is_dir():
            raise BadInput(f"-o {order.to}: no directory {file.parent}", "make it first")
        whole.write(file, text.encode(), "{}")
