"""Leaving at once, with nothing left behind: not after whatever other threads are still at."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

_before: list[Callable[[], None]] = []


def before(function: Callable[[], None]) -> Callable[[], None]:
    """Have this done by whoever leaves at once, before what any end of the process does; of the last one first."""
    _before.append(function)
    return function


def leave(status: int) -> NoReturn:
    """Here and now: threads that compute end with the process."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    while _before:
        with suppress(Exception):
            _before.pop()()
    atexit._run_exitfuncs()  # exported reports, and other temporary folders, go
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)
