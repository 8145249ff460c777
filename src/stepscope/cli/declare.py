"""A command from a function: arguments and options from its signature, help from the docstring of its module.

Positional parameters are arguments, keyword-only ones options. A parameter whose type is a class of shared options
(`cli.shared`, `api.options.Window`) stands for all of them: they are handed over as one value.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import click

from stepscope.api.options import choices
from stepscope.model.option import Option, OptionsOf, shared_options

_NONE = inspect.Parameter.empty


def command_of(
    function: Callable[..., None], name: str | None = None, cls: type[click.Command] = click.Command
) -> click.Command:
    """The command that calls `function`, which is called as the command is, or `name`."""
    groups: dict[str, type] = {}
    params: list[click.Parameter] = []
    hints = get_type_hints(function, include_extras=True)
    for parameter in inspect.signature(function).parameters.values():
        hint = hints[parameter.name]
        option = Option.of(parameter.name, hint, parameter.default)
        if (group := _group_of(hint)) is not None:
            groups[option.name] = group
            params += options_of(group)
        elif parameter.kind is parameter.KEYWORD_ONLY:
            params.append(option_of(option))
        else:
            params.append(argument_of(option))

    def callback(**given: Any) -> None:
        values = {key: taken(group, given) for key, group in groups.items()}
        function(**given, **values)

    return cls(
        name if name is not None else function.__name__.strip("_").replace("_", "-"),
        callback=callback,
        params=params,
        help=inspect.cleandoc(sys.modules[function.__module__].__doc__ or ""),
        context_settings={"show_default": True},
    )


def options_of(group: type) -> list[click.Option]:
    """The options that a class declares."""
    options = shared_options(group)
    if is_typeddict(group):  # keywords, whose meanings stand in lists elsewhere
        options = [dataclasses.replace(option, help=sentence(option.help)) for option in options]
    return [option_of(option) for option in options]


def taken(group: type, given: dict[str, Any]) -> Any:
    """The value of a class of options, which are taken out of what was given. Keywords are those that say something."""
    options = shared_options(group)
    values = {option.name: given.pop(option.name, option.default) for option in options}
    if is_typeddict(group):
        plain = {o.name: o.default for o in options}
        return {k: v for k, v in values.items() if v is not None and v is not False and v != plain[k]}
    return values if dataclasses.is_dataclass(group) else group(**values)


def option_of(option: Option) -> click.Option:
    """`Literal` is a choice, `bool` a flag, `X | None` an option that may be left out, a sequence one to repeat."""
    shell = option.shell
    flag = "--" + option.name.replace("_", "-")
    kind, repeated = _scalar(option.type)
    settings: dict[str, Any] = {"help": shell.help or option.help or None, "hidden": shell.hidden}
    if option.default is _NONE:
        settings["required"] = True
    else:
        settings["default"] = option.default
    if shell.acts is not None:
        settings["callback"] = lambda _context, _option, value: acted(shell.acts, value)
        settings["expose_value"] = False
    if kind is bool:
        flags = (f"{flag}/--no-{flag[2:]}",) if option.default is True else (flag,)
        return click.Option([*(shell.flags or flags), option.name], is_flag=True, **settings)
    if shell.bare is not None:
        settings |= {"is_flag": False, "flag_value": shell.bare}
    settings |= {"type": _type_of(option, kind), "metavar": shell.metavar, "multiple": repeated}
    return click.Option([*(shell.flags or (flag,)), option.name], **settings)


def acted(act: Callable[[Any], object] | None, value: Any) -> Any:
    if act is not None:
        act(value)
    return value


def sentence(text: str) -> str:
    """A meaning as the help shows it: `only these ranks: \\`0,3-5\\`` is "Only these ranks: 0,3-5."."""
    if not text or text[0].isupper() or text.endswith("."):
        return text
    plain = text.replace("`", "")
    return f"{plain[0].upper()}{plain[1:]}."


def argument_of(option: Option) -> click.Argument:
    kind, repeated = _scalar(option.type)
    settings: dict[str, Any] = {
        "metavar": option.shell.metavar,
        "required": option.default is _NONE and option.shell.required,
    }
    if option.default not in (_NONE, ()):
        settings["default"] = option.default
    if repeated:
        settings["nargs"] = -1
    return click.Argument([option.name], type=_type_of(option, kind), **settings)


def _type_of(option: Option, kind: Any) -> click.ParamType[Any] | type:
    shell = option.shell
    if shell.words:
        return click.UNPROCESSED
    allowed = shell.one_of or choices(option.type)
    if allowed:
        return click.Choice([str(a) for a in allowed])
    if shell.between is not None:
        least, most = shell.between
        return (
            click.IntRange(int(least), None if most is None else int(most)) if kind is int else _FloatRange(least, most)
        )
    if kind is float:
        return _Float()
    return click.Path(path_type=Path) if kind is Path else int if kind is int else str


def _finite(kind: click.ParamType[Any], number: float) -> float:
    """Nothing is above or below a number that is not finite (`nan`)."""
    if not math.isfinite(number):
        kind.fail(f"'{number}' is not a valid float.")
    return number


class _Float(click.types.FloatParamType):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return _finite(self, super().convert(value, param, ctx))


class _FloatRange(click.FloatRange):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return _finite(self, super().convert(value, param, ctx))


def _group_of(hint: Any) -> type | None:
    """The class of options that a parameter stands for."""
    if get_origin(hint) is Annotated:
        return next((part.group for part in get_args(hint) if isinstance(part, OptionsOf)), None)
    return hint if is_typeddict(hint) or hasattr(hint, "_field_defaults") else None


def _scalar(hint: Any) -> tuple[Any, bool]:
    """The type of one value, and whether there may be several. What may be of two types is a text."""
    if get_origin(hint) in (Union, UnionType):
        kinds = [part for part in get_args(hint) if part is not type(None)]
        hint = kinds[0] if len(kinds) == 1 else str
    if get_origin(hint) in (list, tuple):
        return get_args(hint)[0], True
    return hint, False
