"""What was derived from tables, kept: every question of a process shares it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import polars as pl

from stepscope import progress
from stepscope.errors import CannotAnswer

#: Bytes of an array that are worth to be given back.
_LARGE = 1 << 20
#: What has more parts than this holds single things, not arrays; and of more ranks than this, smaller arrays count.
_MANY = 64
_UNKNOWN = object()

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:

    class cached_property:
        """As `functools` has it from Python 3.12 on: without a lock for all objects of a class."""

        def __init__(self, function):
            self.function, self.__doc__ = function, function.__doc__

        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self.name] = self.function(instance)
            return value


class Memo:
    """Answers about one subject, by the function that gave them and its arguments, which must be hashable."""

    def __init__(self) -> None:
        self._answers: dict[tuple[Any, ...], Any] = {}

    def once(self, function: Callable[Concatenate[S, P], T], subject: S, *args: P.args, **options: P.kwargs) -> T:
        """`function(subject, …)`, computed when first asked for. What cannot be answered stays so."""
        key = (function, args, tuple(sorted(options.items())))
        answer = self._answers.get(key, _UNKNOWN)
        if answer is _UNKNOWN:
            progress.check()
            try:
                answer = function(subject, *args, **options)
            except CannotAnswer as why:
                answer = _Refused(why)
            self._answers[key] = answer
        if isinstance(answer, _Refused):
            raise answer.why
        kept: T = answer
        return kept

    def keep(self, answer: Any, function: Callable[..., Any], *args: Any) -> None:
        """What the function would answer, where that came out beside another answer."""
        self._answers[(function, args, ())] = answer

    def forget(self, *functions: Callable[..., Any]) -> None:
        """Forget what these functions answered: nobody is about to ask for it again."""
        self._answers = {key: answer for key, answer in self._now() if key[0] not in functions}

    def _now(self) -> list[tuple[tuple[Any, ...], Any]]:
        """What is known now: another thread may come to know more meanwhile."""
        return list(self._answers.items())

    def clear(self) -> None:
        """Forget all: who comes now begins anew."""
        self._answers.clear()

    def let_go(self, ranks: int = 1) -> None:
        """Forget answers that take much memory: they are computed again when they are asked for."""
        self._answers = {key: answer for key, answer in self._now() if not is_large(answer, ranks)}


def is_large(value: Any, ranks: int = 1, depth: int = 3) -> bool:
    """Whether a value holds arrays or tables of some size. Of ranks by the thousand, small ones are much together."""
    least = _LARGE // max(1, ranks // _MANY)
    if isinstance(value, np.ndarray):
        return value.nbytes >= least
    if isinstance(value, pl.DataFrame | pl.Series):
        return value.estimated_size() >= least
    if not depth:
        return False
    parts = _parts(value)
    return len(parts) <= _MANY and any(is_large(part, ranks, depth - 1) for part in parts)


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, tuple | list):
        return list(value)
    fields = [getattr(value, name) for name in getattr(value, "__struct_fields__", ())]  # a Struct has no dictionary
    return [*fields, *getattr(value, "__dict__", {}).values()]


@dataclass(frozen=True)
class _Refused:
    why: CannotAnswer
