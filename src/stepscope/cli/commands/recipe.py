"""The recipes of `nsys recipe`: summaries, heat maps and pace over many ranks, with data files and a page."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepscope.cli import output, progress
from stepscope.cli.memory import memory_option
from stepscope.errors import BadInput
from stepscope.files.whole import building_set
from stepscope.render import FORMATS

if TYPE_CHECKING:
    from stepscope.api import Profile
    from stepscope.model.result import Result
    from stepscope.nsys.recipes import Outcome, Recipe

#: Options that only some recipes take; each recipe says which.
_OWN: tuple[tuple[str, type, str], ...] = (
    ("name", str, "Kernel, or text of the range (pace, hist)."),
    ("bins", int, "How many bins (maps, hist)."),
    ("cumulative", bool, "Add up what runs side by side (maps)."),
    ("base", bool, "Kernels without templates and parameters."),
    ("mangled", bool, "Kernels by their mangled names."),
    ("metric", str, "Regular expression for names of metrics."),
    ("gap", str, "Shortest gap, in milliseconds, or 800us (gpu_gaps)."),
    ("threshold", int, "Show use below this percentage (gpu_time_util)."),
    ("chunks", int, "How many pieces of time (gpu_time_util)."),
    ("rows", int, "Most rows per file (gpu_gaps, gpu_time_util)."),
    ("depth", int, "How deep the tree is shown (nvtx_cpu_topdown)."),
    ("fold", bool, "Write # for numbers in names (nvtx_cpu_topdown)."),
    ("recipe", str, "Which recipe to make of two profiles (diff)."),
    ("tolerance", int, "Differences smaller than this are 0 (diff)."),
    ("drop", bool, "Leave out rows without a difference (diff)."),
    ("start", str, "Leave out what ended before this time (ns, or 1ms)."),
    ("end", str, "Leave out what started after this time (ns, or 1ms)."),
)


def _recipe(asked: str | None, profile: tuple[str, ...], help_wanted: str | None, **given: Any) -> None:
    from stepscope.api.nsys import of_recipe
    from stepscope.nsys import recipes

    if help_wanted is not None or asked is None:
        click.echo(_help(help_wanted or ""), nl=False)
        return
    paths = (*given.pop("input"), *profile)
    if not paths:
        raise click.UsageError("Missing argument 'PROFILE...'.")
    recipe = recipes.find(asked)
    own = {key: given.pop(key) for key, _, _ in _OWN}
    args = {key: value for key, value in own.items() if value is not None and value is not False}
    folder = _folder(recipe.name, given["output"], given["force"])
    target = output.Target.of(None, given["format"])
    recipe.parse(args)
    with progress.shown():
        made, opened = _make(recipe, paths, args, given)
    result = of_recipe(recipe, made, opened, args, given["table"])
    if folder is None:
        target.write(result)
        return
    _write(folder, recipe, made, result, _command(recipe.name, paths, args, given))
    click.echo(f"{folder}/analysis.html\n" + "".join(f"{folder}/{n}.parquet, .csv\n" for n in made.tables), nl=False)


def _make(
    recipe: Recipe, paths: tuple[str, ...], args: dict[str, Any], given: dict[str, Any]
) -> tuple[Outcome, list[Profile]]:
    from stepscope.nsys import recipes
    from stepscope.nsys.recipes import diff

    if recipe.name != diff.NAME:
        profile = _open(paths, given)
        return recipes.run(profile, recipe.name, **args), [profile]
    if len(paths) != 2:
        raise BadInput(f"diff takes two outputs or two profiles, not {len(paths)}", "name the first, then the second")
    full = recipe.parse(args)
    if all(Path(p).is_dir() and diff.is_output(Path(p)) for p in paths):
        (first, a), (second, b) = (diff.read_output(Path(p), recipes.recipes()) for p in paths)
        if first is not second:
            raise BadInput(
                f"{paths[0]} is of {first.name}, {paths[1]} of {second.name}", "compare outputs of one recipe"
            )
        made = diff.compared(a, b, first.keys, full)
        made.summary = {"recipe": first.name}
        return made, []
    inner = recipes.find(str(full["recipe"]))
    if not inner.keys:
        raise BadInput(f"--recipe {inner.name}: its rows cannot be paired", "give a summary, as cuda_gpu_kern_sum")
    profiles = [_open((p,), given) for p in paths]
    tables = [(outcome := recipes.run(p, inner.name)).tables[outcome.main] for p in profiles]
    made = diff.compared(tables[0], tables[1], inner.keys, full)
    made.summary = {"recipe": inner.name}
    return made, profiles


def _open(paths: tuple[str, ...], given: dict[str, Any]) -> Profile:
    from stepscope import api, questions

    opening = {k: given[k] for k in ("nsys", "taxonomy", "jobs", "cluster")}
    profile = api.open(*paths, cache=not given["no_cache"], of_one_job=False, **opening)
    questions.need_timeline(profile, "recipe")
    return profile.view(api.parse_ranks(given["rank"])) if given["rank"] else profile  # type: ignore[return-value]


def _folder(name: str, wanted: str | None, force: bool) -> Path | None:
    """Where to write: a folder that is not there yet, or --force. A bare `-o` takes the first free `NAME-1`, …"""
    if wanted is None:
        return None
    if not wanted:
        return next(p for n in range(1, 10**6) if not (p := Path(f"{name}-{n}")).exists())
    folder = Path(wanted)
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"-o {folder}: is a file", "name a folder")
    if folder.exists() and any(folder.iterdir()) and not force:
        raise BadInput(f"-o {folder}: is there already", "add --force, or name another folder")
    if not folder.parent.is_dir():
        raise BadInput(f"-o {folder}: no directory {folder.parent}", "make it first")
    return folder


def _write(folder: Path, recipe: Recipe, made: Outcome, result: Result, command: str) -> None:
    """Every table as Parquet and CSV under nsys's names for its columns, the page, and what this is."""
    import msgspec

    from stepscope.nsys.recipes.diff import ABOUT
    from stepscope.render.html.recipe import to_html

    about = {"recipe": recipe.name, "table": made.main, "command": command, "notes": list(map(str, result.notes))}
    with building_set(folder, "analysis.html") as beside:
        for name, frame in made.tables.items():
            frame = frame.rename({k: v for k, v in recipe.headers.items() if k in frame.columns})
            frame.write_parquet(beside / f"{name}.parquet")
            frame.write_csv(beside / f"{name}.csv")
        (beside / ABOUT).write_bytes(msgspec.json.format(msgspec.json.encode(about)) + b"\n")
        (beside / "analysis.html").write_text(to_html(recipe, made, result, command), "utf-8")


def _command(name: str, paths: tuple[str, ...], args: dict[str, Any], given: dict[str, Any]) -> str:
    """The command line again, without where it wrote to."""
    options = [f"--{k}" if v is True else f"--{k}={v}" for k, v in args.items()]
    options += [f"--rank={given['rank']}"] if given["rank"] else []
    return shlex.join(["stepscope", "recipe", name, *paths, *options])


def _help(wanted: str) -> str:
    from stepscope.nsys import recipes
    from stepscope.nsys.recipes.help import help_text

    return help_text(recipes.recipes(), wanted)


def _own_options() -> list[click.Option]:
    return [
        click.Option([f"--{key}"], help=text, **({"is_flag": True} if kind is bool else {"type": kind}))
        for key, kind, text in _OWN
    ]


_COMPATIBLE: dict[str, Any] = {"hidden": True, "expose_value": False}

command = click.Command(
    "recipe",
    callback=_recipe,
    params=[
        click.Argument(["asked"], required=False, metavar="NAME"),
        click.Argument(["profile"], nargs=-1, metavar="PROFILE..."),
        click.Option(
            ["--help-recipes", "help_wanted"],
            is_flag=False,
            flag_value="",
            metavar="[NAME|ALL]",
            help="List the recipes, or explain one.",
        ),
        click.Option(
            ["-o", "--output"],
            is_flag=False,
            flag_value="",
            metavar="[DIR]",
            help="Write data files and a page there; without DIR, to a new folder NAME-1, NAME-2, …",
        ),
        click.Option(["--force", "--force-overwrite", "force"], is_flag=True, help="Write into an existing folder."),
        click.Option(["--format"], type=click.Choice(FORMATS), help="On standard output. Default: table."),
        click.Option(["--table"], metavar="TABLE", help="Which table to print; default: the one over all ranks."),
        *_own_options(),
        click.Option(["--rank"], metavar="RANKS", help="Only these ranks: 0,3-5."),
        click.Option(["--jobs"], type=int, metavar="N", help="Processes that read files; default: one per core."),
        click.Option(["--cluster"], metavar="ADDRESS", help="Read on the Dask cluster at tcp://host:port instead."),
        click.Option(["--no-cache"], is_flag=True, help="Read the files again, and cache nothing."),
        click.Option(["--nsys"], metavar="PATH", help="The nsys that exports .nsys-rep files."),
        memory_option(),
        click.Option(["--taxonomy"], metavar="FILE", help="More rules for what is communication (TOML)."),
        click.Option(["--input"], multiple=True, hidden=True),
        click.Option(["--csv"], is_flag=True, **_COMPATIBLE),
        click.Option(["--mode"], **_COMPATIBLE),
    ],
    help="The recipes of `nsys recipe`: summaries, heat maps and pace over many ranks, with data files and a page.\n\n"
    "NAME is a recipe; --help-recipes lists them. Without -o the table over all ranks is printed. With -o every table"
    " is written as Parquet and CSV, with a page that shows the picture and needs no network.",
)
