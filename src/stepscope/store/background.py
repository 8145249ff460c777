"""Work that nobody waits for, done by one thread: writing the cache while the next table is being read.

The thread is joined when the process ends, so that short commands fill the cache too.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from stepscope.files import leaving

#: Tasks hold frames in memory: with this many waiting, the next one waits for the oldest.
_WAITING = 2

#: Seconds for a table to be written before it is given up.
_PATIENCE_S = 3.0

_lock = threading.RLock()  # a signal may come to who has it
_pool: ThreadPoolExecutor | None = None
_pending: deque[Future[None]] = deque()


def submit(task: Callable[[], None]) -> Future[None]:
    """Have `task` done soon."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(1, thread_name_prefix="stepscope-cache")
        while len(_pending) > _WAITING:
            _pending.popleft().exception()
        try:
            future = _pool.submit(task)
        except RuntimeError:  # the interpreter is shutting down
            future = Future()
            task()
            future.set_result(None)
        _pending.append(future)
        return future


def flush() -> None:
    """Wait until all is done."""
    with _lock:
        while _pending:
            _pending.popleft().exception()


@leaving.ends_work
def drop() -> None:
    """Do not begin what waits, and wait for what is being done, but not long: somebody wants to leave."""
    if not _lock.acquire(timeout=_PATIENCE_S):  # another thread waits for what is being done
        return
    try:
        for future in _pending:
            future.cancel()
        for future in _pending:
            with suppress(BaseException):
                future.result(_PATIENCE_S)
        _pending.clear()
    finally:
        _lock.release()


def _forget() -> None:
    """A forked child has the queue, but not the thread."""
    global _pool, _lock
    _lock, _pool = threading.RLock(), None
    _pending.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
