"""Whether a file or folder is still the one that it was: what is read of it in several goes must be of one content.

A file that is replaced, or written to, gets another number, size or time. The time of the last change of the file's
entry (`ctime`) cannot be set by hand: it shows a copy with the old dates, and a file that was moved away and back. It
also changes with another name of the file (`capture merge` gives it one), which leaves the content alone.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from stepscope.errors import Changed


class Entry(NamedTuple):
    """Of one file: name, number, size, how many names it has, and the times of both kinds of change."""

    path: str
    number: int
    size: int
    names: int
    written_ns: int
    changed_ns: int


Stamp = tuple[Entry, ...]

#: Times of files are those of the kernel's clock tick: what is written within one tick cannot be told apart.
_TICK_NS = 10_000_000


def files_of(path: Path) -> list[Path]:
    """The files of a folder, at any depth, in order; a file is its own."""
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def stamp(path: Path) -> Stamp:
    """Changes whenever the file, or one of the folder, is written to or replaced."""
    return tuple(map(entry, files_of(path)))


def entry(path: Path) -> Entry:
    """The same of one file; of a folder, what changes when a file comes or goes."""
    s = path.stat()
    return Entry(str(path), s.st_ino, s.st_size, s.st_nlink, s.st_mtime_ns, s.st_ctime_ns)


class Identity:
    """A file or folder as it is when this is made; OSError where it is not there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp = _settled(path)

    def changed(self) -> bool:
        try:
            now = stamp(self.path)
        except OSError:
            return True
        if now != self._stamp and _named(self._stamp, now):
            self._stamp = now
        return now != self._stamp

    def check(self) -> None:
        """Refuse what was read since, if it may be of two contents."""
        if self.changed():
            raise self.refusal()

    def refusal(self) -> Changed:
        return Changed(f"{self.path}: changed while it was read", "ask again")


def _named(before: Stamp, now: Stamp) -> bool:
    """Whether all that happened is that files got other names, or lost some."""

    def same(a: Entry, b: Entry) -> bool:
        return a == b or (a.names != b.names and a._replace(names=b.names, changed_ns=b.changed_ns) == b)

    return len(before) == len(now) and all(map(same, before, now))


def _settled(path: Path) -> Stamp:
    """The stamp, taken when whatever is written next gets another: a file of just now is waited for, for a tick."""
    current = stamp(path)
    while (
        0
        <= (left := max((max(f.written_ns, f.changed_ns) for f in current), default=0) + _TICK_NS - time.time_ns())
        <= _TICK_NS
    ):
        time.sleep(left / 1e9 + 0.0005)
        current = stamp(path)
    return current
