"""What we do inside a program never ends it: the first thing of ours that fails switches all of it off, in one line."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

#: Why nothing is done any more; None while all is well.
failure: str | None = None
_at_failure: list[Callable[[str], None]] = []


def at_failure(undo: Callable[[str], None]) -> None:
    """Call this with the reason, should something of ours fail: it takes away what we put into the program."""
    _at_failure.append(undo)


def harmless(function: Callable[P, T]) -> Callable[P, T | None]:
    """`function`, of which nothing is raised; after the first failure it does nothing."""

    @functools.wraps(function)
    def guarded(*args: P.args, **options: P.kwargs) -> T | None:
        if failure is not None:
            return None
        try:
            return function(*args, **options)
        except Exception as error:
            disarm(error)
            return None

    return guarded


def disarm(error: Exception) -> None:
    """Something of ours has failed: one line, and the program goes on as if we were not there."""
    global failure
    if failure is not None:
        return
    failure = " ".join(f"{type(error).__name__}: {error}".split())
    with suppress(Exception):
        print(
            f"stepscope: the capture failed and is switched off ({failure}); the program goes on without it",
            file=sys.stderr,
            flush=True,
        )
    for undo in reversed(_at_failure):
        with suppress(Exception):
            undo(failure)
