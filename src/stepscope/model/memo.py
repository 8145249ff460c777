"""What was derived from tables, kept: every question of a process shares it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from stepscope.errors import CannotAnswer

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")


class Memo:
    """Answers about one subject, by the function that gave them and its arguments, which must be hashable."""

    def __init__(self) -> None:
        self._answers: dict[tuple[Any, ...], Any] = {}

    def once(self, function: Callable[Concatenate[S, P], T], subject: S, *args: P.args, **options: P.kwargs) -> T:
        """`function(subject, …)`, computed when first asked for. What cannot be answered stays so."""
        key = (function, args, tuple(sorted(options.items())))
        if key not in self._answers:
            try:
                self._answers[key] = function(subject, *args, **options)
            except CannotAnswer as why:
                self._answers[key] = _Refused(why)
        answer = self._answers[key]
        if isinstance(answer, _Refused):
            raise answer.why
        kept: T = answer
        return kept


@dataclass(frozen=True)
class _Refused:
    why: CannotAnswer
