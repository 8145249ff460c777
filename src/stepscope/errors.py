"""Errors that reach the user: one line that says what is wrong, a hint that says what to do, and an exit status."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


class Changed(BadInput):
    """A file is no longer the one that was opened: nothing of what was read of it may be shown."""


class CannotAnswer(StepscopeError):
    """The profile is fine but lacks what the question needs. The hint says how to capture it."""

    exit_status = 3


class GateFailed(StepscopeError):
    """An answer was found, and it is worse than the threshold the user set. `result` is that answer, to be shown."""

    exit_status = 1

    def __init__(self, message: str, hint: str | None = None, result: Any = None) -> None:
        super().__init__(message, hint)
        self.result = result


#: Names that are less alike than this are not what somebody meant to write.
_ALIKE = 0.75
#: A beginning of this many letters says what was meant.
_FEWEST_LETTERS = 3
_MOST_MEANT = 3


def meant(name: str, known: Iterable[str], show: Callable[[str], str] = str) -> str | None:
    """What somebody who wrote `name` meant, as a question: close names only, and those that it is the beginning of."""
    from difflib import get_close_matches

    spelled = {_plain(k): k for k in known}
    wanted = _plain(name)
    near = get_close_matches(wanted, spelled, n=1, cutoff=_ALIKE)
    if not near and len(wanted) >= _FEWEST_LETTERS:
        near = [k for k in spelled if k.startswith(wanted)][:_MOST_MEANT]
    return f"did you mean {' or '.join(show(spelled[k]) for k in near)}?" if near else None


def extra(name: str) -> str:
    """The command that installs an extra where this stepscope came from: the index, a clone or a file."""
    import json
    from importlib import metadata
    from urllib.parse import unquote, urlparse

    given = f"stepscope[{name}]"
    try:
        origin = json.loads(metadata.distribution("stepscope").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        origin = {}
    url = urlparse(origin.get("url", ""))
    if url.scheme == "file" and "dir_info" in origin:
        editable = "-e " if origin["dir_info"].get("editable") else ""
        return f"pip install {editable}'{unquote(url.path)}[{name}]'"
    return f"pip install '{given} @ {origin['url']}'" if url.scheme else f"pip install '{given}'"


def meant_of(name: str, known: Iterable[str]) -> str:
    """What was meant; where no name is close, what there is."""
    listed = list(known)
    return meant(name, listed) or f"there are {', '.join(listed)}"


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").lstrip("-")
