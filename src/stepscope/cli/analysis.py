"""The command of an analysis: its options from its signature, its help from its docstring."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import click

from stepscope import api, questions
from stepscope.api.options import choices, takes_profile
from stepscope.cli import output, progress
from stepscope.cli.memory import memory_option
from stepscope.errors import GateFailed
from stepscope.render import FORMATS


def command_of(name: str) -> click.Command:
    """The click command of the analysis `name`."""
    analysis = questions.get(name)
    options = [option_of(o) for o in analysis.options]
    if analysis.windowed:
        options += window_options()
    body = inspect.cleandoc(analysis.doc).partition("\n")[2].strip()

    def callback(profile: tuple[str, ...], **given: Any) -> None:
        _ask(name, profile, given)

    return click.Command(
        name,
        callback=callback,
        params=[
            profile_argument(analysis.needs_profile),
            *options,
            *(worker_options() if analysis.across else ()),
            *_common_options(),
        ],
        help=f"{analysis.question}\n\n{body}",
        epilog=f"Columns: {', '.join(c.name for c in analysis.columns)}.",
        context_settings={"show_default": True},
    )


def _ask(name: str, paths: tuple[str, ...], given: dict[str, Any]) -> None:
    target = output.Target.of(given.pop("output"), given.pop("format"))
    opening: dict[str, Any] = {"cache": not given.pop("no_cache")}
    opening |= {k: given.pop(k) for k in ("nsys", "taxonomy", "labels", "jobs", "cluster") if k in given}
    with progress.shown():
        profile = api.open(*paths, **opening) if paths or questions.get(name).needs_profile else None
        target.spare([*map(Path, paths), *(profile.paths if profile is not None else ())])
        for option in questions.get(name).options:
            if takes_profile(option.type) and given[option.name] is not None:
                given[option.name] = api.open(given[option.name], **opening)
        try:
            result = api.analyse(profile, name, **given)
        except GateFailed as failed:
            if failed.result is not None:
                target.write(failed.result)
            raise
    target.write(result)


def option_of(option: questions.Option) -> click.Option:
    """`Literal` is a choice, `bool` a flag, `X | None` an option that may be left out, a sequence one to repeat."""
    flag = "--" + option.name.replace("_", "-")
    kind, repeated = _scalar(option.type)
    settings: dict[str, Any] = {"help": option.help or None}
    if option.default is inspect.Parameter.empty:
        settings["required"] = True
    else:
        settings["default"] = option.default
    if kind is bool:
        return click.Option([f"{flag}/--no-{flag[2:]}" if option.default is True else flag], is_flag=True, **settings)
    allowed = choices(option.type)
    if allowed is not None:
        settings["type"] = click.Choice([str(a) for a in allowed])
    else:
        settings["type"] = {int: int, float: float, Path: click.Path(path_type=Path)}.get(kind, str)
    return click.Option([flag, option.name], multiple=repeated, **settings)


def _scalar(hint: Any) -> tuple[Any, bool]:
    """The type of one value, and whether there may be several."""
    if get_origin(hint) in (Union, UnionType):
        hint = next((part for part in get_args(hint) if part is not type(None)), str)
    if get_origin(hint) in (list, tuple):
        return get_args(hint)[0], True
    return hint, False


def profile_argument(required: bool = True) -> click.Argument:
    shown = "PROFILE..." if required else "[PROFILE...]"
    return click.Argument(["profile"], nargs=-1, required=required, metavar=shown)


def window_options() -> list[click.Option]:
    return [
        click.Option(["--step"], is_flag=True, help="The step, from the end of the one before it to its own end."),
        click.Option(["--chunk"], is_flag=True, help="The median overlapped chunk, where the trainer marks chunks."),
        click.Option(["--anchor"], metavar="REGEX", help="Ranges that make a window instead."),
        click.Option(
            ["--index"], default="median", metavar="N|median|all", help="Which step, chunk or instance of the anchor."
        ),
        click.Option(["--period"], is_flag=True, help="Of an anchor: to the next instance's first op."),
        click.Option(["--whole"], is_flag=True, help="The whole capture, whatever ranges there are."),
        click.Option(["--match"], is_flag=True, help="The same chunk on every rank, not each rank's own median."),
        click.Option(["--start"], metavar="TIME", help="GPU time from the capture's beginning on: 1.5ms."),
        click.Option(["--end"], metavar="TIME", help="End of that window."),
    ]


def worker_options() -> list[click.Option]:
    return [
        click.Option(["--jobs"], type=int, metavar="N", help="Processes that read files; default: one per core."),
        click.Option(["--cluster"], metavar="ADDRESS", help="Read on the Dask cluster at tcp://host:port instead."),
    ]


def _common_options() -> list[click.Option]:
    return [
        click.Option(["--rank"], metavar="RANKS", help="Only these ranks: 0,3-5."),
        click.Option(["--sort"], metavar="COLUMNS", help="Rows by these columns: exposed_ns, or rank,dur_ns:asc."),
        click.Option(
            ["--top"],
            type=int,
            metavar="N",
            help="The N rows that matter most, or come first with --sort; 0 for all. Default: 10 of a long list in a "
            "table or Markdown, else all.",
        ),
        click.Option(["--limit"], type=int, metavar="N", help="A page: N rows in their order, 0 for all."),
        click.Option(["--offset"], type=int, default=0, metavar="N", help="From which row on; the first is 0."),
        click.Option(["--format"], type=click.Choice(FORMATS), help="Default: table, or by the suffix of -o."),
        click.Option(["-o", "--output"], metavar="FILE", help="Write there instead of to standard output."),
        *reading_options(),
    ]


def reading_options() -> list[click.Option]:
    """How files are read, and by which rules: of every command that opens a profile."""
    return [
        click.Option(["--no-cache"], is_flag=True, help="Read the files again, and cache nothing."),
        click.Option(["--nsys"], metavar="PATH", help="The nsys that exports .nsys-rep files."),
        click.Option(["--taxonomy"], metavar="FILE", help="More rules for what is communication (TOML)."),
        labels_option(),
        memory_option(),
    ]


def labels_option() -> click.Option:
    return click.Option(
        ["--labels"],
        metavar="PRESET|FILE",
        help="What the trainer calls its ranges: steps, stages, what communication serves (docs/labels.md).",
    )
