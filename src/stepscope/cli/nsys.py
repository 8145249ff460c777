"""What `stats` and `rules` share: options spelled as nsys spells them, and where each answer goes."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import click

from stepscope.cli import progress, streams
from stepscope.cli.shared import Memory, NoCache, Nsys, RankNumbers
from stepscope.errors import BadInput, CannotAnswer
from stepscope.files import whole
from stepscope.model.option import Shell
from stepscope.model.visible import visible

if TYPE_CHECKING:
    from stepscope.nsys.reports import Answer
    from stepscope.nsys.reports.formats import Format
    from stepscope.nsys.reports.spec import Args, Report

#: Profiles that may be left out where only help is asked for.
Profiles = Annotated[tuple[str, ...], "", Shell(metavar="PROFILE...", required=False)]
_ASKED = "NAME[:ARG…][,NAME…]"
Reports = Annotated[
    tuple[str, ...], "What to show; --help-reports lists them.", Shell(flags=("-r", "--report"), metavar=_ASKED)
]
Rules = Annotated[
    tuple[str, ...], "What to show; --help-rules lists them.", Shell(flags=("-r", "--rule"), metavar=_ASKED)
]
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


class Showing(NamedTuple):
    """In which form reports are shown, of which time, and where."""

    formats: Annotated[
        tuple[str, ...],
        "column, table, csv, tsv, json, hdoc, htable or md; one for all, or one each.",
        Shell(flags=("-f", "--format"), metavar="FORMAT[:ARG…][,…]"),
    ] = ()
    outputs: Annotated[
        tuple[str, ...],
        "Standard output, files BASE_NAME.SUFFIX (. for the profile's own name), a command.",
        Shell(flags=("-o", "--output"), metavar="-|.|BASE|@COMMAND[,…]"),
    ] = ()
    timeunit: Annotated[str | None, "nsec, usec, msec or seconds.", Shell(metavar="UNIT")] = None
    filter_time: Annotated[
        str | None, "Only what overlaps this time, as in 1s/1500ms.", Shell(metavar="[START]/[END]")
    ] = None
    filter_nvtx: Annotated[
        str | None,
        "Only what overlaps this NVTX range, of its process or thread.",
        Shell(metavar="NAME[@DOMAIN][/INDEX]"),
    ] = None
    force_overwrite: Annotated[str, "Overwrite existing files.", Shell(metavar="", bare="true")] = "false"
    quiet: Annotated[bool, "Say nothing about what is skipped.", Shell(flags=("-q", "--quiet"))] = False


class Reading(NamedTuple):
    """Which ranks are read, and how."""

    rank: RankNumbers = None
    no_cache: NoCache = False
    nsys: Nsys = None
    memory: Memory = None
    #: an option of nsys that changes nothing here
    force_export: Annotated[str | None, "", Shell(bare="true", hidden=True)] = None


def split(texts: Sequence[str]) -> list[str]:
    """Options may be repeated, and hold lists."""
    return [part for text in texts for part in text.split(",") if part]


def orders(asked: list[str], find: Callable[[str], tuple[Report, Args]], showing: Showing) -> list[Order]:
    """Reports with their formats and outputs: the last format and output serve all that follow."""
    from stepscope.nsys.reports.formats import parse_format
    from stepscope.nsys.reports.part import parse_span

    formats, outputs = split(showing.formats), split(showing.outputs) or ["-"]
    times: dict[str, int | str | None] = {}
    if showing.filter_time:
        times["start"], times["end"] = parse_span(showing.filter_time)
    if showing.filter_nvtx:  # as in nsys, it takes precedence
        times = {"start": None, "end": None, "nvtx": showing.filter_nvtx}
    made = []
    for i, text in enumerate(asked):
        report, args = find(text)
        args.update({k: v for k, v in times.items() if args.get(k) is None})
        to = outputs[min(i, len(outputs) - 1)]
        name = formats[min(i, len(formats) - 1)] if formats else "."
        name = ("column" if to == "-" else "csv") if name == "." else name
        made.append(Order(text, report, args, parse_format(name, showing.timeunit), to))
    return made


def run(
    paths: Sequence[str],
    asked: list[Order],
    showing: Showing,
    reading: Reading,
    as_text: Callable[[Order, Answer], Iterable[str]],
) -> None:
    """Make every report. What a profile cannot answer is skipped with a line on stderr; nothing at all is a failure."""
    from stepscope import api, questions
    from stepscope.model.note import LEFT_OUT
    from stepscope.nsys.reports import Asker

    if not paths:
        raise click.UsageError("Missing argument 'PROFILE...'.")
    refused: list[CannotAnswer] = []
    with progress.shown():
        profile = api.open(*paths, cache=not reading.no_cache, nsys=reading.nsys)
        questions.need_timeline(profile, "nsys stats")
        if reading.rank:
            profile = profile.view(api.parse_ranks(reading.rank))  # type: ignore[assignment]
        asker = Asker(profile)
        for order in asked:
            try:
                answer = asker.ask(order.report, order.args)
            except CannotAnswer as error:
                refused.append(CannotAnswer(f"{order.text}: {error.message}", error.hint))
                continue
            text = as_text(order, answer)
            if not _deliver(order, text, profile.paths[0], showing.force_overwrite == "true"):
                _say(showing, f"{order.text}: nothing to show")
            for note in answer.notes:
                _say(showing, f"{order.text}: {note}")
    if refused and len(refused) == len(asked):
        raise refused[0]
    for note in profile.notes:
        if note.code in LEFT_OUT:  # rows that nsys counts; what it says of ranks and warnings is not of these reports
            _say(showing, note)
    for reason in refused:
        _say(showing, f"skipped {reason}")


def _say(showing: Showing, text: str) -> None:
    if not showing.quiet:
        streams.complain(visible(text))


def text_of(order: Order, answer: Answer, advice: str = "") -> Iterator[str]:
    """An answer in the format asked for, some rows at a time; Markdown has its title and advice in it."""
    if order.format.name == "md":
        from stepscope.render.nsys_markdown import to_markdown

        yield to_markdown(answer, order.format, order.text, advice)
        return
    from stepscope.nsys.reports.formats import pieces

    yield from pieces(answer, order.format)


def titled(order: Order, text: Iterable[str], advice: str = "") -> Iterator[str]:
    """On a terminal the human-readable formats have a heading, as nsys's have."""
    if order.to == "-" and order.format.name in _TITLED:
        yield f"\n ** {order.report.title} ({order.text.partition(':')[0]}):\n\n{advice}"
    yield from text


def _deliver(order: Order, text: Iterable[str], profile: Path, overwrite: bool) -> bool:
    """Whether there was any text."""
    pieces = filter(None, text)
    first = next(pieces, "")
    whole_text = chain([first], pieces)
    if order.to == "-":
        progress.hide()
        for piece in whole_text:
            click.echo(visible(piece), nl=False)
        click.echo(nl=bool(first))
    elif order.to.startswith("@"):
        try:
            status = _piped(shlex.split(order.to[1:]), whole_text)
        except (OSError, ValueError) as error:
            raise BadInput(f"-o {order.to}: cannot run it ({error})", "give a command that reads a report") from None
        if status:
            raise BadInput(f"-o {order.to}: it failed, with status {status}", "fix it, or give a file")
    elif first:
        from stepscope.nsys.reports.formats import SUFFIXES

        base = profile.with_suffix("") if order.to == "." else Path(order.to)
        what = order.text.replace(":", "_").replace("=", "_").replace("/", "_")
        file = base.with_name(f"{base.name}_{what}{SUFFIXES[order.format.name]}")
        if file.exists() and not overwrite:
            raise BadInput(f"{file}: already exists", "add --force-overwrite, or name another -o")
        if not file.parent.is_dir():
            raise BadInput(f"-o {order.to}: no directory {file.parent}", "make it first")
        whole.write(file, (piece.encode() for piece in whole_text), "{}")
    return bool(first)


def _piped(command: list[str], text: Iterable[str]) -> int:
    """The status of a command that read the text, or as much of it as it wanted."""
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        with suppress(BrokenPipeError):
            for piece in text:
                child.stdin.write(piece.encode())
            child.stdin.close()
    return child.returncode
