"""Leaving at once, with nothing left behind: not after whatever other threads are still at."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

#: What ends processes of ours and what they and we are writing, and then what removes files.
_work: list[Callable[[], None]] = []
_files: list[Callable[[], None]] = []


def ends_work(function: Callable[[], None]) -> Callable[[], None]:
    """Have this done by whoever leaves at once."""
    _work.append(function)
    return function


def removes_files(function: Callable[[], None]) -> Callable[[], None]:
    """Likewise, when all that has ended."""
    _files.append(function)
    return function


def leave(status: int) -> NoReturn:
    """Here and now: threads that compute end with the process.

    What others registered for its end (`atexit`) is not done: it may wait for those threads.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    for clears in (*_work, *_files):
        with suppress(Exception):
            clears()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)
