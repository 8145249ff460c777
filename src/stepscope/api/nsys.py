"""What nsys answers, as answers of ours: its reports, rules and recipes, with the window and the notes they rest on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stepscope import questions
from stepscope.api.analysing import notebook, printed
from stepscope.api.options import Ranks, parse_ranks
from stepscope.errors import BadInput, meant_of
from stepscope.model import profile as model
from stepscope.model.note import PROFILER_WARNING
from stepscope.model.result import Result

if TYPE_CHECKING:
    from stepscope.nsys.recipes import Outcome, Recipe
    from stepscope.nsys.reports.spec import Report


def stats(profile: model.Profile, name: str, *, rank: Ranks | None = None, **arguments: Any) -> Result:
    """A report of `nsys stats`: headers as in nsys, times in ns, sizes in bytes."""
    from stepscope.nsys.reports import reports

    return _report(profile, name, reports(), "report", "stats", rank, arguments)


def rules(profile: model.Profile, name: str, *, rank: Ranks | None = None, **arguments: Any) -> Result:
    """A rule of `nsys analyze`."""
    from stepscope.nsys.reports import all_rules

    return _report(profile, name, all_rules(), "rule", "rules", rank, arguments)


def _report(
    profile: model.Profile,
    name: str,
    among: dict[str, Report],
    what: str,
    command: str,
    rank: Ranks | None,
    arguments: dict[str, Any],
) -> Result:
    from stepscope.nsys.reports import Asker
    from stepscope.nsys.reports.registry import find
    from stepscope.nsys.reports.units import Units

    given = {k.replace("_", "-"): v for k, v in arguments.items() if v is not None and v is not False}
    report, args = find(":".join([name, *(k if v is True else f"{k}={v}" for k, v in given.items())]), among, what)
    chosen = _chosen(profile, command, rank)
    answer = Asker(chosen).ask(report, args)
    plain = Units(convert=False)
    rows = answer.frame.clone()
    rows.columns = [plain.header(c) for c in report.columns]
    return Result(
        rows,
        notes=list(dict.fromkeys([*chosen.notes, *answer.notes])),
        command=f"{command} {report.name}",
        sources=chosen.sources,
        ranks=chosen.ranks.height,
        notebook=notebook,
        printed=printed,
    )


def recipe(
    profile: model.Profile, name: str, *, table: str | None = None, rank: Ranks | None = None, **arguments: Any
) -> Result:
    """A recipe of `nsys recipe`: its table over all ranks, or the one that is named."""
    from stepscope.nsys import recipes

    chosen = _chosen(profile, "recipe", rank)
    recipe = recipes.find(name)
    return of_recipe(recipe, recipes.run(chosen, name, **arguments), [chosen], arguments, table)


def of_recipe(
    recipe: Recipe,
    made: Outcome,
    profiles: Sequence[model.Profile],
    arguments: dict[str, Any],
    table: str | None = None,
) -> Result:
    """One table of what a recipe made, with what it rests on."""
    from stepscope.nsys.recipes.spans import on_clock
    from stepscope.nsys.recipes.spec import windows

    name = table or made.main
    if name not in made.tables:
        raise BadInput(f"--table {name!r}: {recipe.name} has none of that name", meant_of(name, made.tables))
    parsed = recipe.parse(on_clock(profiles[0], arguments) if profiles else arguments)
    read = [n for profile in profiles for n in profile.notes if n.code != PROFILER_WARNING]
    return Result(
        made.tables[name],
        [row for profile in profiles for row in windows(profile, parsed)],
        made.summary,
        list(dict.fromkeys([*read, *made.notes])),
        command=f"recipe {recipe.name}",
        sources=[s for profile in profiles for s in profile.sources],
        ranks=max((p.ranks.height for p in profiles), default=0),
        notebook=notebook,
        printed=printed,
    )


def _chosen(profile: model.Profile, asked: str, rank: Ranks | None) -> model.Profile:
    questions.need_timeline(profile, asked)
    return profile if rank is None else profile.view(parse_ranks(rank))
