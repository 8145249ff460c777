"""How far a long piece of work is. Work reports; whoever shows it (the CLI, on a terminal) listens; else nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

#: (what is being done, done, total); totals are None where unknown.
Listener = Callable[[str, int | None, int | None], None]
T = TypeVar("T")

_listener: Listener | None = None
#: What the work at hand is for: a question of a report, a finding that is looked for.
_phase: ContextVar[str] = ContextVar("phase", default="")


def listen(listener: Listener | None) -> None:
    """Send reports to `listener`, or to nobody."""
    global _listener
    _listener = listener


def report(what: str, done: int | None = None, total: int | None = None) -> None:
    """Say what is being done. Cheap enough for once per table or rank, not for once per event."""
    if _listener is not None:
        phase = _phase.get()
        _listener(f"{phase}: {what}" if phase else what, done, total)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """All that the block reports is for this, and for what the phases around it are for. It is itself a report."""
    around = _phase.get()
    whole = f"{around}, {name}" if around else name
    before = _phase.set(whole)
    try:
        if _listener is not None:
            _listener(whole, None, None)
        yield
    finally:
        _phase.reset(before)


def each(what: str, items: Sequence[T]) -> Iterator[T]:
    """The items, reported one by one as they are begun; a single one is not counted."""
    for done, item in enumerate(items, 1):
        if len(items) > 1:
            report(what, done, len(items))
        yield item
