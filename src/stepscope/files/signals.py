"""Moments that no signal may interrupt: what is made must be known to whoever removes it, and removing it must end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that end the program take effect after the block. They interrupt the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    before: dict[int, Callable[[int, FrameType | None], object]] = {}
    for number in _ENDING:
        handler = signal.getsignal(number)
        if callable(handler):  # else it is ignored, or ends the process at once
            before[number] = handler
            signal.signal(number, lambda n, frame: came.append((n, frame)))
    try:
        yield
    finally:
        for sent, handler in before.items():
            signal.signal(sent, handler)
        for sent, frame in came:
            before[sent](sent, frame)
