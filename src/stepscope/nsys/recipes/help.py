"""What recipes there are: the text of `--help-recipes`."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from stepscope.nsys.recipes.registry import find
from stepscope.nsys.recipes.spec import Recipe

_WIDTH = 100


def help_text(among: Mapping[str, Recipe], wanted: str = "") -> str:
    """All in short; one, or with `ALL` every one, at length."""
    if not wanted:
        widest = max(map(len, among))
        return "".join(f"  {r.name.ljust(widest)}  {r.title}\n" for r in among.values())
    chosen = list(among.values()) if wanted.upper() == "ALL" else [find(wanted)]
    return "\n".join(map(_long, chosen))


def _long(recipe: Recipe) -> str:
    lines = [
        f"{recipe.name} -- {recipe.title}",
        "",
        *textwrap.wrap(recipe.doc, _WIDTH, initial_indent="  ", subsequent_indent="  "),
    ]
    if recipe.all_args:
        lines += ["", "  Options:"]
    for a in recipe.all_args:
        default = f" (default {a.default})" if a.default not in (None, False) else ""
        lines.append(f"    --{a.name}: {a.help}{default}")
    return "\n".join(lines) + "\n"
