"""How far a long piece of work is. Work reports; whoever shows it (the CLI, on a terminal) listens; else nothing."""

from __future__ import annotations

from collections.abc import Callable

#: (what is being done, done, total); totals are None where unknown.
Listener = Callable[[str, int | None, int | None], None]

_listener: Listener | None = None


def listen(listener: Listener | None) -> None:
    """Send reports to `listener`, or to nobody."""
    global _listener
    _listener = listener


def report(what: str, done: int | None = None, total: int | None = None) -> None:
    """Say what is being done. Cheap enough for once per table or rank, not for once per event."""
    if _listener is not None:
        _listener(what, done, total)
