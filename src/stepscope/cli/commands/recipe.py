"""The recipes of `nsys recipe`: summaries, heat maps and pace over many ranks, with data files and a page.

NAME is a recipe; --help-recipes lists them. Without -o the table over all ranks is printed. With -o every table is
written as Parquet and CSV, with a page that shows the picture and needs no network.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypedDict

import click

from stepscope.cli import progress
from stepscope.cli.declare import command_of
from stepscope.cli.output import Target
from stepscope.cli.shared import Cluster, Jobs, Memory, NoCache, Nsys, RankNumbers, Taxonomy
from stepscope.errors import BadInput
from stepscope.files.whole import building_set
from stepscope.model.command_line import command_line, joined
from stepscope.model.option import Shell
from stepscope.render import FORMATS, Format

if TYPE_CHECKING:
    from stepscope.api import Profile
    from stepscope.model.result import Result
    from stepscope.nsys.recipes import Outcome, Recipe


class Arguments(TypedDict, total=False):
    """Options that only some recipes take; each recipe says which."""

    name: Annotated[str | None, "Kernel, or text of the range (pace, hist)."]
    bins: Annotated[int | None, "How many bins (maps, hist)."]
    cumulative: Annotated[bool, "Add up what runs side by side (maps)."]
    base: Annotated[bool, "Kernels without templates and parameters."]
    mangled: Annotated[bool, "Kernels by their mangled names."]
    metric: Annotated[str | None, "Regular expression for names of metrics."]
    gap: Annotated[str | None, "Shortest gap, in milliseconds, or 800us (gpu_gaps)."]
    threshold: Annotated[int | None, "Show use below this percentage (gpu_time_util)."]
    chunks: Annotated[int | None, "How many pieces of time (gpu_time_util)."]
    rows: Annotated[int | None, "Most rows per file (gpu_gaps, gpu_time_util)."]
    depth: Annotated[int | None, "How deep the tree is shown (nvtx_cpu_topdown)."]
    fold: Annotated[bool, "Write # for numbers in names (nvtx_cpu_topdown)."]
    recipe: Annotated[str | None, "Which recipe to make of two profiles (diff)."]
    tolerance: Annotated[int | None, "Differences smaller than this are 0 (diff)."]
    drop: Annotated[bool, "Leave out rows without a difference (diff)."]
    start: Annotated[
        str | None,
        "Leave out what ended before this time: 1ms is from the capture's beginning; @1ms, and a number without a unit "
        "(in ns), are on the trace's clock.",
    ]
    end: Annotated[str | None, "Leave out what started after this time."]


class Reading(NamedTuple):
    """Which ranks are read, by whom, and by which rules."""

    rank: RankNumbers = None
    jobs: Jobs = None
    cluster: Cluster = None
    no_cache: NoCache = False
    nsys: Nsys = None
    memory: Memory = None
    taxonomy: Taxonomy = None


def _recipe(
    asked: Annotated[str | None, "", Shell(metavar="NAME", required=False)],
    profile: Annotated[tuple[str, ...], "", Shell(metavar="PROFILE...", required=False)],
    *,
    help_wanted: Annotated[
        str | None,
        "List the recipes, or explain one.",
        Shell(flags=("--help-recipes",), metavar="[NAME|ALL]", bare=""),
    ] = None,
    output: Annotated[
        str | None,
        "Write data files and a page there; without DIR, to a new folder NAME-1, NAME-2, …",
        Shell(flags=("-o", "--output"), metavar="[DIR]", bare=""),
    ] = None,
    force: Annotated[bool, "Write into an existing folder.", Shell(flags=("--force", "--force-overwrite"))] = False,
    format: Annotated[Format | None, "On standard output. Default: table.", Shell(one_of=FORMATS)] = None,
    table: Annotated[
        str | None, "Which table to print; default: the one over all ranks.", Shell(metavar="TABLE")
    ] = None,
    arguments: Arguments,
    reading: Reading,
    input: Annotated[tuple[str, ...], "", Shell(hidden=True)] = (),
    csv: Annotated[bool, "", Shell(hidden=True)] = False,
    mode: Annotated[str | None, "", Shell(hidden=True)] = None,
) -> None:
    from stepscope.api.nsys import of_recipe
    from stepscope.nsys import recipes

    if help_wanted is not None or asked is None:
        click.echo(_help(help_wanted or ""), nl=False)
        return
    paths = (*input, *profile)
    if not paths:
        if Path(asked).exists():
            raise BadInput("the recipe comes first", f"recipe NAME {asked}; --help-recipes lists the names")
        recipes.find(asked)
        raise BadInput(f"no profile for {asked}", f"name it: recipe {asked} PROFILE")
    recipe = recipes.find(asked)
    args: dict[str, Any] = {**arguments}
    folder = _folder(recipe.name, output, force)
    target = Target.of(None, format)
    recipe.parse(args)
    with progress.shown():
        made, opened = _make(recipe, paths, args, reading)
    result = of_recipe(recipe, made, opened, args, table)
    if folder is None:
        target.write(result)
        return
    _write(folder, recipe, made, result, _command(recipe.name, paths, args, reading.rank))
    click.echo(f"{folder}/analysis.html\n" + "".join(f"{folder}/{n}.parquet, .csv\n" for n in made.tables), nl=False)


def _make(
    recipe: Recipe, paths: tuple[str, ...], args: dict[str, Any], reading: Reading
) -> tuple[Outcome, list[Profile]]:
    from stepscope.nsys import recipes
    from stepscope.nsys.recipes import diff

    if recipe.name != diff.NAME:
        profile = _open(paths, reading)
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
    profiles = [_open((p,), reading) for p in paths]
    tables = [(outcome := recipes.run(p, inner.name)).tables[outcome.main] for p in profiles]
    made = diff.compared(tables[0], tables[1], inner.keys, full)
    made.summary = {"recipe": inner.name}
    return made, profiles


def _open(paths: tuple[str, ...], reading: Reading) -> Profile:
    from stepscope import api, questions

    workers: dict[str, Any] = {"jobs": reading.jobs, "cluster": reading.cluster}
    rules: dict[str, Any] = {"nsys": reading.nsys, "taxonomy": reading.taxonomy}
    profile = api.open(*paths, cache=not reading.no_cache, of_one_job=False, **rules, **workers)
    questions.need_timeline(profile, "recipe")
    return profile.view(api.parse_ranks(reading.rank)) if reading.rank else profile  # type: ignore[return-value]


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
        raise BadInput(f"-o {folder}: already exists", "add --force, or name another folder")
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


def _command(name: str, paths: tuple[str, ...], args: dict[str, Any], rank: str | None) -> str:
    """The command line again, without where it wrote to."""
    return command_line("recipe", name, *paths, *joined(args | ({"rank": rank} if rank else {})))


def _help(wanted: str) -> str:
    from stepscope.nsys import recipes
    from stepscope.nsys.recipes.help import help_text

    return help_text(recipes.recipes(), wanted)


command = command_of(_recipe)
