"""Two outputs of one recipe subtracted: what the second has more than the first, row by row of the same key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import polars as pl

from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.profile import Profile
from stepscope.nsys.recipes.picture import Bars
from stepscope.nsys.recipes.spec import Outcome, Recipe
from stepscope.nsys.reports.spec import Args, Argument

NAME = "diff"
#: What a folder of ours says about itself.
ABOUT = "recipe.json"
#: What a folder of nsys's own recipes is called by.
_NSYS = "*.nsys-analysis"
_MOST_BARS = 15


def compared(before: pl.DataFrame, after: pl.DataFrame, keys: Sequence[str], args: Args) -> Outcome:
    """Second minus first. A key that only one has counts as zero in the other, and `only` says so."""
    figures = [c for c in before.columns if c in after.columns and c not in keys and before.schema[c].is_numeric()]
    figures = [c for c in figures if c not in ("rank", "pid")]
    for frame, which in ((before, "first"), (after, "second")):
        if missing := [k for k in keys if k not in frame.columns]:
            raise CannotAnswer(f"the {which} has no column {missing[0]!r}", "compare two outputs of the same recipe")
    joined = before.select(*keys, *figures, pl.lit(True).alias("a")).join(
        after.select(*keys, *figures, pl.lit(True).alias("b")),
        on=list(keys),
        how="full",
        coalesce=True,
        suffix="_after",
    )
    only = pl.when(pl.col("b").is_null()).then(pl.lit("first")).when(pl.col("a").is_null()).then(pl.lit("second"))
    deltas = joined.select(
        *keys,
        only.alias("only"),
        *((pl.col(f"{c}_after").fill_null(0) - pl.col(c).fill_null(0)).alias(c) for c in figures),
    )
    tolerance = args.get("tolerance")
    if isinstance(tolerance, int) and tolerance > 0:
        deltas = deltas.with_columns(
            pl.when(pl.col(c).abs() < tolerance).then(0).otherwise(pl.col(c)).alias(c) for c in figures
        )
    if args.flag("drop"):
        deltas = deltas.filter(pl.any_horizontal(pl.col(c) != 0 for c in figures))
    lead = next((c for c in figures if c.startswith(("total", "exposed"))), figures[0] if figures else None)
    if lead is None:
        raise CannotAnswer("the outputs have no figures in common", "compare two outputs of the same recipe")
    # What a reader looks at first: the leading figure of both, and by how much it changed.
    shown = joined.select(
        *keys, only.alias("only"), *_pair(lead), *(x for c in ("n", _mean(figures)) if c in figures for x in _pair(c))
    )
    shown = deltas.select(keys).join(shown, on=list(keys), how="left", nulls_equal=True)
    order = pl.col(_named(lead, "delta")).abs()
    shown = shown.sort(order, *keys, descending=[True, *[False] * len(keys)], nulls_last=True)
    return Outcome({"diff": shown, "all_stats": deltas.sort(list(keys))}, [_bars(shown, keys, lead)])


def _mean(figures: Sequence[str]) -> str:
    return next((c for c in figures if c.startswith("avg")), "")


def _named(column: str, which: str) -> str:
    """`total_ns` and `delta` are `total_delta_ns`: the unit stays at the end."""
    stem, _, unit = column.rpartition("_")
    return f"{stem}_{which}_{unit}" if stem else f"{column}_{which}"


def _pair(column: str) -> list[pl.Expr]:
    a, b = pl.col(column).fill_null(0), pl.col(f"{column}_after").fill_null(0)
    return [a.alias(_named(column, "before")), b.alias(_named(column, "after")), (b - a).alias(_named(column, "delta"))]


def _bars(shown: pl.DataFrame, keys: Sequence[str], lead: str) -> Bars:
    top = shown.head(_MOST_BARS)
    labels = [" · ".join(map(str, row)) for row in top.select(keys).iter_rows()]
    return Bars("Second minus first, greatest changes first", labels, top[_named(lead, "delta")].to_list(), lead)


def is_output(folder: Path) -> bool:
    """Whether a recipe wrote this folder."""
    return (folder / ABOUT).is_file() or any(folder.glob(_NSYS))


def read_output(folder: Path, recipes: Mapping[str, Recipe]) -> tuple[Recipe, pl.DataFrame]:
    """A folder that a recipe wrote, ours or nsys's: which recipe, and its first table under our names."""
    if (folder / ABOUT).is_file():
        about = msgspec.json.decode((folder / ABOUT).read_bytes())
        name, table = str(about.get("recipe")), str(about.get("table"))
    else:
        table = "all_stats"
        files = sorted(folder.glob(_NSYS))
        if not files or not (folder / f"{table}.parquet").is_file():
            raise BadInput(
                f"{folder}: is not the output of a recipe", "give folders that `recipe -o` wrote, or two profiles"
            )
        name = _nsys_recipe(files[0])
    if name not in recipes or not recipes[name].keys:
        raise BadInput(f"{folder}: output of {name!r}, which cannot be compared", "give the output of a summary")
    try:
        frame = pl.read_parquet(folder / f"{table}.parquet")
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise BadInput(f"{folder / table}.parquet: cannot be read", "run the recipe again") from None
    recipe = recipes[name]
    ours = {nsys: own for own, nsys in recipe.headers.items()}
    renamed = {c: ours.get(c.removesuffix(" (approx)"), c) for c in frame.columns}
    return recipe, frame.rename(renamed)


def _nsys_recipe(analysis: Path) -> str:
    """The recipe that nsys's description of a folder names."""
    try:
        about = msgspec.json.decode(analysis.read_bytes())
    except (OSError, msgspec.DecodeError):
        raise BadInput(f"{analysis}: cannot be read", "run the recipe again") from None
    return str(about.get("RecipeName") or about.get("recipeName") or about.get("DisplayName") or "")


def _refuse(profile: Profile, args: Args) -> Outcome:
    raise BadInput("diff takes two outputs or two profiles", "see `stepscope recipe --help-recipes diff`")


RECIPE = Recipe(
    NAME,
    "Statistics Diff",
    _refuse,
    "Two outputs of one recipe, or one recipe (--recipe) of two profiles, subtracted: the second minus the first."
    " Outputs of nsys's own recipes can be given too.",
    (
        Argument("recipe", str, "which recipe to make of both, where profiles are given", "cuda_gpu_kern_sum"),
        Argument("tolerance", int, "differences smaller than this are 0", 0),
        Argument("drop", bool, "leave out rows without a difference", False),
    ),
    spans=False,
)
