"""All recipes by name."""

from __future__ import annotations

from functools import cache

from stepscope.errors import BadInput, meant_of
from stepscope.nsys.recipes import diff, kernels, maps, metrics, overlap, pace, rules, sums, topdown
from stepscope.nsys.recipes.spec import Recipe


@cache
def recipes() -> dict[str, Recipe]:
    modules = (sums, overlap, maps, pace, kernels, topdown, rules, metrics)
    return {r.name: r for module in modules for r in module.RECIPES} | {diff.NAME: diff.RECIPE}


def find(name: str) -> Recipe:
    by_name = recipes()
    if name not in by_name:
        raise BadInput(f"no recipe {name!r}", meant_of(name, by_name))
    return by_name[name]
