"""What an agent is told when a call cannot be answered: a code, one line, and the next call to make."""

from __future__ import annotations

import logging
from typing import Any

from pydantic import ValidationError

from stepscope.errors import BadInput, CannotAnswer, StepscopeError

PREFIX = "stepscope_"

#: Every code, and what it says. docs/agents.md lists them.
CODES = {
    "bad_argument": "an argument of the tool is missing, unknown, or of another type",
    "bad_cursor": "the cursor is not of this call, or the files have changed since",
    "bad_input": "a file cannot be read, or a value cannot be",
    "bad_option": "the analysis has the option, but not that value of it",
    "cannot_answer": "the profile lacks what the question needs; the hint says how to capture it",
    "internal": "a defect of stepscope; the server's standard error has the traceback",
    "outside_roots": "the path is not below a folder that the server was started with, or leads out of it",
    "unknown_analysis": "there is no analysis, table or subject of that name",
    "unknown_option": "the analysis has no such option",
    "unknown_tool": "there is no tool of that name",
}

#: What an agent sent in error need not come back whole.
_LONGEST_LINE = 1_000
_LONGEST_CALL = 5_000

_log = logging.getLogger(__name__)


class Refused(StepscopeError):
    """A failure whose code, and whose next call, are known where it is raised."""

    def __init__(
        self, code: str, message: str, hint: str | None = None, next_call: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message, hint)
        self.code, self.next_call = code, next_call


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    """A call as an agent can send it; what is None is left out."""
    return {"tool": PREFIX + tool, "arguments": {k: v for k, v in arguments.items() if v is not None}}


def described(error: BaseException, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The error as structured content. `arguments` are those of the call that failed."""
    profile = arguments.get("profile")
    if isinstance(error, Refused):
        return _error(error.code, error.message, error.hint, error.next_call or _look(profile))
    if isinstance(error, CannotAnswer):
        return _error("cannot_answer", error.message, error.hint, _look(profile))
    if isinstance(error, BadInput):
        sql = call("describe", name="tables") if tool == f"{PREFIX}sql" else None
        return _error("bad_input", error.message, error.hint, sql or call("list", what="files"))
    if isinstance(error, StepscopeError):
        return _error("bad_input", error.message, error.hint, _look(profile))
    if isinstance(error, OSError):  # a file that went away meanwhile, or may not be read
        return _error("bad_input", f"cannot read it: {error.strerror or error}", None, call("list", what="files"))
    if isinstance(error, ValidationError):
        return _error("bad_argument", _said(error), f"see the input schema of {tool}", call("list", what="analyses"))
    _log.error("%s failed", tool, exc_info=error)
    return _error(
        "internal",
        f"unexpected {type(error).__name__}: this is a defect of stepscope",
        "ask another way, and tell the user: the server's standard error has the traceback",
        call("list", what="analyses"),
    )


def _look(profile: Any) -> dict[str, Any]:
    """What to do when nothing better is known: see what the profile holds, or which there are."""
    return call("open", profile=profile) if profile else call("list", what="files")


def _error(code: str, message: str, hint: str | None, next_call: dict[str, Any]) -> dict[str, Any]:
    if len(str(next_call)) > _LONGEST_CALL:  # it would repeat what is too long
        next_call = call("list", what="files")
    return {"error": {"code": code, "message": _cut(message), "hint": hint and _cut(hint), "next": next_call}}


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_LINE else f"{text[: _LONGEST_LINE - 1]}…"


def _said(error: ValidationError) -> str:
    """The first two complaints of the schema, in a line."""
    parts = [f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors()[:2]]
    return "; ".join(" ".join(part.split()) for part in parts)
