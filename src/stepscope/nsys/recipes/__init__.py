"""Recipes: questions over many ranks as `nsys recipe` asks them, each with its tables and its picture.

    import stepscope
    from stepscope.nsys import recipes
    outcome = recipes.run(stepscope.open("traces/*.sqlite"), "nccl_sum")
    outcome.tables["rank_stats"]

A recipe is declared in one of this package's modules: what every rank gives, and what is made of it all.
"""

from __future__ import annotations

from collections.abc import Mapping

from stepscope.errors import CannotAnswer
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.nsys.recipes.registry import find, recipes
from stepscope.nsys.recipes.spans import on_clock, refusal
from stepscope.nsys.recipes.spec import Outcome, Recipe
from stepscope.nsys.reports.spec import Value

__all__ = ["Outcome", "Recipe", "find", "recipes", "run"]


def run(profile: Profile, name: str, /, **given: Value) -> Outcome:
    """One recipe of one profile; arguments as on the command line."""
    recipe = find(name)
    args = recipe.parse(on_clock(profile, given))
    try:
        outcome = recipe.make(profile, args)
    except CannotAnswer as error:
        raise refusal(profile, args) or error from None
    outcome.notes += _torch_notes(profile, name)
    return outcome


def _torch_notes(profile: Profile, name: str) -> list[Note]:
    """What a torch trace cannot say."""
    if all(s.format != "kineto" for s in profile.sources):
        return []
    notes: Mapping[str, Note] = {
        "nvtx": noted("not-in-torch-traces/ranges"),
        "cuda_api": noted("not-in-torch-traces/calls"),
        "nccl_sum": noted("not-in-torch-traces/collectives"),
        "nccl_gpu_proj_sum": noted("not-in-torch-traces/metadata"),
    }
    return [note for prefix, note in notes.items() if name.startswith(prefix)]
