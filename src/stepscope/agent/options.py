"""Options of an analysis as JSON has them: their schemas, their values checked, and command lines as calls and back."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from stepscope import questions
from stepscope.agent.failures import Refused, call
from stepscope.agent.roots import Roots
from stepscope.api.options import WINDOW_KEYWORDS, choices, keywords, shared, takes_profile
from stepscope.errors import meant, meant_of
from stepscope.model.command_line import command_line, flags
from stepscope.model.option import Effect, Option
from stepscope.questions import Analysis
from stepscope.sql.catalogue import catalogue

#: What every analysis has (the first ones only if it looks at a window). Pages are the tools' own.
_SHARED = (*WINDOW_KEYWORDS, "rank", "top", "sort")
#: Commands that agents ask for, which are not analyses; and what answers the same here.
_COMMANDS = {
    "stats": "reports as `nsys stats` has them; ask `kernels`, `launches`, `nvtx` or `collectives` for like figures",
    "rules": "expert rules as nsys has them; ask `diagnose` for findings",
    "recipe": "recipes as nsys has them; ask `iterations`, `overlap` or `stragglers` over many ranks",
}
#: Keywords of Python and the command line that the tools have under other names.
PAGED = ("limit", "offset")


def analysis_of(name: str) -> Analysis:
    """The analysis, or which ones there are."""
    names = questions.names()
    wanted = name.strip().replace("_", "-")
    if wanted in _COMMANDS:
        raise Refused(
            "unknown_analysis",
            f"{wanted!r} is a command, not an analysis: {_COMMANDS[wanted]}",
            f"in a shell: stepscope {wanted} PROFILE",
            call("list", what="analyses"),
        )
    if wanted not in names:
        raise Refused(
            "unknown_analysis", f"no analysis {name!r}", meant_of(wanted, names), call("list", what="analyses")
        )
    return questions.get(wanted)


def common_schemas() -> dict[str, dict[str, Any]]:
    """What all analyses, or all that look at a window, have in common."""
    return {name: {**_plain_schema(option.json), "description": option.help} for name, option in common().items()}


def common() -> dict[str, Option]:
    """The options themselves, by name."""
    every = shared()
    return {name: every[name] for name in _SHARED}


def offered(analysis: Analysis) -> dict[str, dict[str, Any]]:
    """By name, the JSON schema of every option that agents have: none that writes, or draws in a terminal."""
    schemas = {o.name: _schema(o) for o in analysis.options if _harmless(o)}
    shared = common_schemas()
    return schemas | {name: shared[name] for name in keywords(analysis) if name in shared}


def checked(analysis: Analysis, given: dict[str, Any], roots: Roots) -> dict[str, Any]:
    """The options as `api.analyse` takes them; files among them are below the roots."""
    offers = offered(analysis)
    own = {o.name: o for o in analysis.options}
    values: dict[str, Any] = {}
    for key, value in given.items():
        name = key.lstrip("-").replace("-", "_")
        if name not in offers:
            hint = meant(name, offers) or f"it has {', '.join(offers)}"
            raise Refused("unknown_option", f"{analysis.name}: no option {key!r}", hint, _describe(analysis))
        if value is None:
            continue
        option = own.get(name)
        kind: Any = common()[name].json if option is None else str if takes_profile(option.type) else option.type
        if isinstance(value, str) and get_origin(kind) is tuple:
            value = [value]
        try:
            values[name] = TypeAdapter(kind).validate_python(value)
        except ValidationError as error:
            allowed = choices(kind)
            expected = f"give one of {', '.join(map(str, allowed))}" if allowed else error.errors()[0]["msg"]
            raise Refused("bad_option", f"{name}={value!r} is not possible", expected, _describe(analysis)) from None
        if option is not None and (option.effect is Effect.READS or takes_profile(option.type)):
            values[name] = _file(option, values[name], roots)
    return values


def question_of(name: str, given: Any, roots: Roots) -> tuple[Analysis, dict[str, Any]]:
    """An analysis with its options, whose answer is to be a table."""
    again = call("describe", name="tables")
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", name) or name in catalogue():
        hint = "use lower case, and no name of a table that there is"
        raise Refused("bad_argument", f"answers: {name!r} cannot be a table's name", hint, again)
    if not isinstance(given, dict) or not isinstance(given.get("options", {}), dict) or "analysis" not in given:
        hint = 'give {"analysis": "overlap", "options": {"step": true}}'
        raise Refused("bad_argument", f"answers: {name} is not an analysis with its options", hint, again)
    if extra := set(given) - {"analysis", "options"}:
        raise Refused("bad_argument", f"answers: {name} has {sorted(extra)[0]!r}", "give analysis and options", again)
    analysis = analysis_of(str(given["analysis"]))
    return analysis, checked(analysis, given.get("options", {}), roots)


def line_of(analysis: Analysis, paths: Sequence[str], options: dict[str, Any]) -> str:
    """What prints the same on a terminal."""
    on = [o.name for o in analysis.options if o.default is True]
    return command_line(analysis.name, *paths, *flags(options, on=on))


def call_of(line: str, profile: str | list[str]) -> dict[str, Any]:
    """The call that answers what a cited command line does (`stepscope overlap PROFILE --by purpose --step`)."""
    _, name, *words = shlex.split(line)
    analysis = questions.get(name)
    own = {o.name: o for o in analysis.options}
    options: dict[str, Any] = {}
    at = next((n for n, word in enumerate(words) if word.startswith("--")), len(words))
    while at < len(words):
        key = words[at].removeprefix("--").replace("-", "_")
        hint = own[key].type if key in own else common()[key].json
        if hint is bool:
            options[key] = True
            at += 1
            continue
        text = words[at + 1]
        repeated = get_origin(hint) is tuple
        value = TypeAdapter(hint).validate_python([*options.get(key, ()), text] if repeated else _number(text))
        options[key] = list(value) if repeated else value
        at += 2
    # `full`: the figures of a finding may stand in any of the rows.
    return call("run", profile=profile, analysis=name, options=options, detail="full")


def _harmless(option: Option) -> bool:
    """Whether agents may have it. A path of which nobody said that it is read might be written to."""
    if option.effect is None:
        return Path not in (option.type, *get_args(option.type))
    return option.effect is Effect.READS


def _schema(option: Option) -> dict[str, Any]:
    schema = {"type": "string"} if takes_profile(option.type) else _plain_schema(option.type)
    if option.default is not inspect.Parameter.empty and option.default not in (None, ()):
        schema["default"] = option.default
    return {**schema, "description": option.help} if option.help else schema


def _plain_schema(hint: Any) -> dict[str, Any]:
    """Pydantic's schema, without the null of what may be left out anyway."""
    schema = TypeAdapter(hint).json_schema()
    some = [part for part in schema.pop("anyOf", []) if part.get("type") != "null"]
    if len(some) == 1:
        schema |= some[0]
    elif some:
        schema["type"] = [part["type"] for part in some]
    schema.pop("format", None)  # a path is a text
    schema.pop("default", None)
    return schema


def _file(option: Option, value: Any, roots: Roots) -> Any:
    """A file that an option names. A declared model may also be a preset's name, or written out (`layers=6,…`)."""
    text = str(value)
    named = isinstance(value, Path) or takes_profile(option.type) or text.endswith(".toml")
    return str(roots.path(text)) if named or any(c in text for c in "/\\") else value


def _number(text: str) -> int | str:
    return int(text) if text.removeprefix("-").isdigit() else text


def _describe(analysis: Analysis) -> dict[str, Any]:
    return call("describe", name=analysis.name)
