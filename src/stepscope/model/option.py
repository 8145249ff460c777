"""An option, declared once: a parameter with its type, its default and its meaning, which every front end reads.

`Annotated[int | None, "rows in their order", Shell(metavar="N")]` is an option of the command line, a keyword of Python
and a property of the agents' tools. Options that several commands share stand in a class: a `TypedDict` of keywords, or
a `NamedTuple` with what is made of them. This module imports nothing large: listing commands must stay quick.

An option may do more than change the answer (`Effect`): front ends that may not write or draw leave such options out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints, is_typeddict


class Effect(Enum):
    """Stands in the annotation of an option, after its help: `Annotated[Path | None, "…", Effect.WRITES]`."""

    READS = "names a file or folder that is read"
    WRITES = "names a file that is written"
    DRAWS = "draws in the terminal"


class Shell(NamedTuple):
    """What the command line alone needs to know of an option."""

    #: how it is spelled; by default as it is named
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    #: its help, where that of other front ends would not do
    help: str | None = None
    #: of an argument: whether there must be one
    required: bool = True
    #: the only values that it takes, where its type does not say
    one_of: tuple[str, ...] = ()
    #: the least and the most that it takes
    between: tuple[float, float | None] | None = None
    #: what it means without a value
    bare: str | None = None
    #: of a `TypedDict`, which has no defaults
    default: Any = None
    #: understood, but not shown
    hidden: bool = False
    #: the words of a command to run, of which no option is ours
    words: bool = False
    #: called with the value while the line is parsed, and not handed on: what is of the process, not of a command
    acts: Callable[[Any], object] | None = None


_PLAIN = Shell()


class Json(NamedTuple):
    """The type of an option where JSON has another than Python."""

    type: Any


class OptionsOf(NamedTuple):
    """A parameter that stands for the options of a class that checks them together: they come as keywords."""

    group: type


@dataclass(frozen=True)
class Option:
    """One parameter: of an analysis, of a command, or of options that several share."""

    name: str
    type: Any
    default: Any
    help: str
    effect: Effect | None = None
    shell: Shell = _PLAIN
    json: Any = None

    @classmethod
    def of(cls, name: str, hint: Any, default: Any) -> Option:
        """From an annotation."""
        if get_origin(hint) is not Annotated:
            return cls(name, hint, default, "")
        hint, text, *more = get_args(hint)
        effect = next((m for m in more if isinstance(m, Effect)), None)
        shell = next((m for m in more if isinstance(m, Shell)), _PLAIN)
        json = next((m.type for m in more if isinstance(m, Json)), hint)
        return cls(name, hint, default, str(text), effect, shell, json)


def keyword_options(function: Callable[..., Any]) -> list[Option]:
    """The keyword-only parameters of a function."""
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    return [Option.of(p.name, hints[p.name], p.default) for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]


def shared_options(group: type) -> list[Option]:
    """The options that a class declares: its annotated fields."""
    hints = get_type_hints(group, include_extras=True)
    declared = {name: hint for name, hint in hints.items() if get_origin(hint) is Annotated}
    return [Option.of(name, hint, _default(group, name, hint)) for name, hint in declared.items()]


def _default(group: type, name: str, hint: Any) -> Any:
    """What an option is unless it is given; one of a `TypedDict` may always be left out."""
    if is_typeddict(group):
        option = Option.of(name, hint, None)
        return False if option.type is bool else option.shell.default
    defaults: Mapping[str, Any] = getattr(group, "_field_defaults", vars(group))
    return defaults.get(name, inspect.Parameter.empty)
