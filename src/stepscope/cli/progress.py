"""Progress on stderr: only on a terminal, and only once the work has taken a second."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stepscope import progress

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: Work shorter than this shows nothing.
PATIENCE_S = 1.0
#: From here on a count is told as a share: bytes of a file.
_MANY = 100_000
#: Cells of the bar, and of all that stands beside the text: the text is shortened, not the time.
_BAR, _BESIDE = 16, 28


@contextmanager
def shown() -> Iterator[None]:
    """Show what `stepscope.progress` reports while the block runs."""
    if not sys.stderr.isatty():
        yield
        return
    global _drawn
    display = _drawn = _Display()
    progress.listen(display.report)
    display.wait()
    try:
        yield
    finally:
        progress.listen(None)
        display.hide()
        _drawn = None


def hide() -> None:
    """Take the bar away before something is written; work that goes on long after that brings it back."""
    if _drawn is not None:
        _drawn.hide()
        _drawn.wait()


def echo(text: str) -> None:
    """What a command says, on stdout; above the bar, where one is drawn."""
    sys.stdout.write(text)
    sys.stdout.flush()


class _Display:
    """The latest report; drawn by rich once started. Reports may come from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: tuple[str, int | None, int | None] = ("starting", None, None)
        #: what the bar counts, and in how many phases: what is not counted, or within more of them, is a part of it
        self._counted: tuple[str, int, int] | None = None
        self._depth = 0
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._timer: threading.Timer | None = None

    def report(self, what: str, done: int | None, total: int | None) -> None:
        with self._lock:
            self._latest = (what, done, total)
            self._count(progress.depth())
            self._draw()

    def _count(self, depth: int) -> None:
        """One bar for one command: a count within another does not take it over."""
        what, done, total = self._latest
        if self._counted is not None and depth > self._depth:
            return
        if done is not None and total is not None:
            self._counted, self._depth = (what, done, total), depth
        elif self._counted is not None and self._counted[1] >= self._counted[2]:
            self._counted = None  # the last of them is done

    def wait(self) -> None:
        """Be drawn in a while."""
        with self._lock:
            self._timer = threading.Timer(PATIENCE_S, self._start)
            self._timer.daemon = True
            self._timer.start()

    def hide(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.table import Column

        with self._lock:
            if threading.current_thread() is not self._timer:  # hidden meanwhile
                return
            console = Console(stderr=True)
            text = Column(no_wrap=True, overflow="ellipsis", max_width=max(console.width - _BESIDE, 10))
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False, table_column=text),
                BarColumn(bar_width=_BAR),
                TimeElapsedColumn(),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task("", total=None)
            self._draw()
            self._bar.start()

    def _draw(self) -> None:
        if self._bar is None or self._task is None:
            return
        what, done, total = self._latest
        text, within = _counted(what, done, total), 0.0
        if self._counted is not None and self._counted != self._latest:
            within = done / total if done and total and total >= _MANY else 0.0  # bytes: other counts come again
            whole, done, total = self._counted
            text = f"{_counted(whole, done, total)}: {text}"
        if done and total and total < _MANY:  # that one is being worked on: it is not done yet
            self._bar.update(self._task, description=text, completed=done - 1 + within, total=total)
        else:
            self._bar.update(self._task, description=text, completed=done or 0, total=total)


def _counted(what: str, done: int | None, total: int | None) -> str:
    """`reading rank 3 of 8`; bytes and other large numbers as a share."""
    if done is None or total is None:
        return what if done is None else f"{what} {done}"
    return f"{what} {done} of {total}" if total < _MANY else f"{what} {done / total:.0%}"


#: What is drawn now.
_drawn: _Display | None = None
