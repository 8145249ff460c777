"""Standard input that a signal can end. The SDK reads it in a thread, which Ctrl-C alone does not wake."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from stepscope.files.leaving import leave

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")  # not every system has the last
_AT_ONCE = 1 << 16
#: After a signal, calls that are under way have so long to stop: some computations do not look for a while.
PATIENCE_S = 1.0


def leave_soon(number: int) -> None:
    """What computes on after a signal ends with the process."""
    hard = threading.Timer(PATIENCE_S, leave, (128 + number,))
    hard.daemon = True
    hard.start()


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """Within this, a signal is the end of standard input, upon which a server ends; afterwards it takes its effect."""
    theirs = os.dup(0)
    ours, into = os.pipe()
    os.dup2(ours, 0)
    os.close(ours)
    lock = threading.Lock()
    open_ends = [into]
    caught: list[int] = []

    def close() -> None:
        with lock:
            while open_ends:
                os.close(open_ends.pop())

    def copy() -> None:
        with suppress(OSError):  # the other end is gone
            while (data := os.read(theirs, _AT_ONCE)) and open_ends:
                while data:
                    data = data[os.write(into, data) :]
        close()

    def end(number: int, _: FrameType | None) -> None:
        caught.append(number)
        signal.signal(number, before[number])  # a second one need not wait for the work that is under way
        threading.Thread(target=close, daemon=True).start()  # the lock may be held where the signal came
        leave_soon(number)

    before = {n: signal.getsignal(n) for name in _SIGNALS if (n := getattr(signal, name, None)) is not None}
    for number in before:
        signal.signal(number, end)
    threading.Thread(target=copy, daemon=True).start()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if caught:
        signal.raise_signal(caught[0])
