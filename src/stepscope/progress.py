"""How far a long piece of work is, and whether it is still wanted.

Work reports; whoever shows it (the CLI on a terminal, a server to its client) listens; else nothing. Where somebody may
lose interest (a cancelled call, a closed tab), each report and each thing that is derived is a place to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Executor

#: (what is being done, done, total); totals are None where unknown.
Listener = Callable[[str, int | None, int | None], None]
S = TypeVar("S")
T = TypeVar("T")

_listener: Listener | None = None
#: Who listens to the work of this call alone, and whether it is to stop: of a server that answers several at once.
_own_listener: ContextVar[Listener | None] = ContextVar("own_listener", default=None)
_unwanted: ContextVar[Callable[[], bool] | None] = ContextVar("unwanted", default=None)
#: What the work at hand is for: a question of a report, a finding that is looked for.
_phase: ContextVar[str] = ContextVar("phase", default="")
_depth: ContextVar[int] = ContextVar("depth", default=0)


class Stopped(BaseException):
    """Nobody wants the answer any more. Not an `Exception`: what is caught on the way must not answer instead."""


@contextmanager
def wanted(unwanted: Callable[[], bool], listener: Listener | None = None) -> Iterator[None]:
    """The block stops, by `Stopped`, soon after `unwanted()` is true; its reports go to `listener` too."""
    stop, hear = _unwanted.set(unwanted), _own_listener.set(listener)
    try:
        yield
    finally:
        _unwanted.reset(stop)
        _own_listener.reset(hear)


def check() -> None:
    """Stop here where the work is not wanted any more. Cheap enough for once per table that is derived."""
    if (unwanted := _unwanted.get()) is not None and unwanted():
        raise Stopped


def mapped(pool: Executor, function: Callable[[S], T], items: Sequence[S]) -> Iterator[T]:
    """`function` of each, in the pool; where it is not wanted any more, those that have not begun are left out."""
    try:
        for answer in pool.map(function, items):
            check()
            yield answer
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def listen(listener: Listener | None) -> None:
    """Send reports to `listener`, or to nobody."""
    global _listener
    _listener = listener


def report(what: str, done: int | None = None, total: int | None = None) -> None:
    """Say what is being done. Cheap enough for once per table or rank, not for once per event."""
    check()
    phase = _phase.get()
    _tell(f"{phase}: {what}" if phase else what, done, total)


def _tell(what: str, done: int | None, total: int | None) -> None:
    for listener in (_listener, _own_listener.get()):
        if listener is not None:
            listener(what, done, total)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """All that the block reports is for this, and for what the phases around it are for. It is itself a report."""
    around = _phase.get()
    whole = f"{around}, {name}" if around else name
    before, deep = _phase.set(whole), _depth.set(_depth.get() + 1)
    try:
        check()
        _tell(whole, None, None)
        yield
    finally:
        _phase.reset(before)
        _depth.reset(deep)


@contextmanager
def within() -> Iterator[None]:
    """What the block counts is a part of what is counted around it."""
    deep = _depth.set(_depth.get() + 1)
    try:
        yield
    finally:
        _depth.reset(deep)


def depth() -> int:
    """In how many phases the work at hand lies: a count in more of them is a part of one in fewer."""
    return _depth.get()


def each(what: str, items: Sequence[T]) -> Iterator[T]:
    """The items, reported one by one as they are begun; a single one is not counted."""
    for done, item in enumerate(items, 1):
        if len(items) > 1:
            report(what, done, len(items))
        yield item
