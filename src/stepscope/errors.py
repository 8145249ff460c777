"""Errors that reach the user: one line that says what is wrong, a hint that says what to do, and an exit status."""

from __future__ import annotations

from typing import Any


class StepscopeError(Exception):
    """Base of every expected failure. `str(error)` is one line: the message, then the hint."""

    exit_status = 2

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class BadInput(StepscopeError):
    """Bad usage or unreadable input. The message names the file or option, the hint the fix."""

    exit_status = 2


class CannotAnswer(StepscopeError):
    """The profile is fine but lacks what the question needs. The hint says how to capture it."""

    exit_status = 3


class GateFailed(StepscopeError):
    """An answer was found, and it is worse than the threshold the user set. `result` is that answer, to be shown."""

    exit_status = 1

    def __init__(self, message: str, hint: str | None = None, result: Any = None) -> None:
        super().__init__(message, hint)
        self.result = result
