"""What nsys answers, for agents: reports of `stats`, rules and recipes, each by its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from stepscope import api
from stepscope.agent.failures import Refused, call
from stepscope.api import nsys
from stepscope.errors import meant_of
from stepscope.model.command_line import command_line, joined
from stepscope.model.result import Result

#: What `stepscope_run` takes in place of an analysis; each needs the option `name`.
KINDS = {"stats": nsys.stats, "rules": nsys.rules, "recipe": nsys.recipe}


def named() -> dict[str, dict[str, str]]:
    """By kind, the names that there are, and what each shows."""
    from stepscope.nsys.recipes import recipes
    from stepscope.nsys.reports import all_rules, reports

    among: dict[str, dict[str, Any]] = {"stats": dict(reports()), "rules": dict(all_rules()), "recipe": dict(recipes())}
    return {kind: {name: one.title for name, one in those.items()} for kind, those in among.items()}


class Listed(TypedDict):
    analysis: str
    name: str
    shows: str


def listed() -> list[Listed]:
    """All of them, as rows."""
    return [
        {"analysis": kind, "name": name, "shows": title}
        for kind, those in named().items()
        for name, title in those.items()
    ]


def checked(kind: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name among the options, and the arguments beside it."""
    rest = dict(options)
    name, kinds = rest.pop("name", None), named()[kind]
    again = call("list", what="reports")
    if not isinstance(name, str) or name.partition(":")[0] not in kinds:
        if not name:
            hint = f'give options={{"name": "{min(kinds)}"}}, or another'
            raise Refused("bad_option", f"{kind}: options do not name one of the {len(kinds)} there are", hint, again)
        hint = meant_of(str(name), kinds)
        raise Refused("bad_option", f"{kind}: name={name!r} is not one of {len(kinds)}", hint, again)
    for key, value in rest.items():
        if not isinstance(value, str | int | float | bool):
            raise Refused("bad_option", f"{key}={value!r} is not possible", "give a text, a number or true", again)
    return name, rest


def answered(profile: api.Profile, kind: str, name: str, arguments: dict[str, Any]) -> Result:
    try:
        return KINDS[kind](profile, name, **arguments)
    except TypeError as error:  # an argument that there is not
        raise Refused("unknown_option", f"{kind} {name}: {error}", None, call("list", what="reports")) from None


def line_of(kind: str, paths: Sequence[str], name: str, arguments: dict[str, Any]) -> str:
    """What prints the same on a terminal."""
    words = [kind, name, *paths] if kind == "recipe" else [kind, *paths, "-r", name]
    return command_line(*words, *joined(arguments))
