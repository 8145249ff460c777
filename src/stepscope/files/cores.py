"""How many threads may work at once: the one owner of that number."""

from __future__ import annotations

import os

#: Who limits Polars limits us: a worker among several, a job that shares its machine.
ENV = "POLARS_MAX_THREADS"
#: More threads than this only wait for each other: for memory, or for Python's lock.
_MOST = 8


def threads() -> int:
    """As many as Polars may have where that was said, else as there are cores that the process may use."""
    given = os.environ.get(ENV, "")
    allowed = int(given) if given.isdecimal() else 0
    return min(_MOST, allowed or _cores())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
