"""The worker of queries, from outside: started, asked, and ended with what it computes where nobody wants it any more.

One that is idle waits for the next query, so that a server does not start a process for each.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from stepscope import progress
from stepscope.errors import BadInput
from stepscope.files import leaving

Message = dict[str, Any]

#: How often to look whether somebody wants to stop.
_LOOK_S = 0.1
#: `sys.path` is that of this process, and never the folder that a user happens to be in.
_START = "import sys; sys.path[:] = sys.argv[1:]; from stepscope.sql.worker import main; main()"

#: Set, it shows what the process prints.
_DEBUG = "STEPSCOPE_DEBUG"

_guard = threading.Lock()
#: By process: a forked child has no part in its parent's.
_idle: dict[int, list[Worker]] = {}


class Worker:
    """One process."""

    def __init__(self) -> None:
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, *_paths()],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
                stderr=None if os.environ.get(_DEBUG) else subprocess.DEVNULL,  # DuckDB's last words are nobody's
                cwd=os.sep,  # the folder that a user is in may go, and DuckDB aborts without one
                start_new_session=True,  # Ctrl-C is ours
                env={**os.environ, "POLARS_MAX_THREADS": "2"},  # it only hands tables over
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise BadInput(f"sql cannot start a process ({error})", "it runs queries in one of its own") from None
        self._replies: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._ready = False

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with suppress(ValueError):
            for line in self._process.stdout:
                self._replies.put(json.loads(line))
        self._replies.put(None)

    def send(self, **message: Any) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it is gone: the reply says so
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def reply(self, seconds: float | None = None) -> Message:
        """Its next message; `TimeoutError` where that takes longer."""
        return self._next(None if seconds is None else time.monotonic() + seconds)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def begin(self) -> None:
        """Wait until it has started: that is not the query's time."""
        if not self._ready:
            self._next(None)
            self._ready = True

    def _next(self, until: float | None) -> Message:
        while True:
            try:
                message = self._replies.get(timeout=_LOOK_S)  # a wait without an end is not woken by Ctrl-C
            except queue.Empty:
                progress.check()
                if until is not None and time.monotonic() > until:
                    raise TimeoutError from None
                continue
            if message is None:
                raise BrokenPipeError(self.ended_by())
            return message

    def ended_by(self) -> str:
        """How a process that is gone ended, in a word or two."""
        status = self._process.wait()
        return signal.Signals(-status).name if status < 0 else f"status {status}"

    def end(self) -> None:
        """At once, whatever it is at."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


def _paths() -> list[str]:
    """`sys.path` for a process in another folder: a relative entry is one of ours, where there still is a folder."""
    with suppress(OSError):
        return [str(Path(entry).absolute()) for entry in sys.path if entry]
    return [entry for entry in sys.path if Path(entry).is_absolute()]


@contextmanager
def worker() -> Iterator[Worker]:
    """An idle one or a new one. Where the block is left by an exception, what the worker is at ends with it."""
    with _guard:
        idle = _idle.setdefault(os.getpid(), [])
        one = idle.pop() if idle else None
    if one is not None and one.ended:  # while it was idle: a system short of memory ends those first
        one.end()
        one = None
    one = one or Worker()
    try:
        yield one
    except BaseException:
        one.end()
        raise
    keep(one)


def keep(one: Worker) -> None:
    """For the next query; one is enough."""
    with _guard:
        idle = _idle.setdefault(os.getpid(), [])
        spare = bool(idle)
        if not spare:
            idle.append(one)
    if spare:
        one.end()


def prepare() -> None:
    """Start a worker now, so that it is there when the tables are."""
    with _guard:
        there = bool(_idle.get(os.getpid()))
    if not there:
        keep(Worker())


@atexit.register
@leaving.ends_work
def _end_idle() -> None:
    for one in _idle.pop(os.getpid(), []):
        one.end()
