"""Memory of a server that lives for days: what calls leave is given back."""

from __future__ import annotations

import gc

from stepscope.files import budget

#: glibc's number for the most heaps that threads allocate from, and how many we let it have. It would take eight for
#: each core, and keep every one as large as it once was: over 7,000 calls memory went on growing.
_M_ARENA_MAX, _HEAPS = -8, 2


def settle() -> None:
    """To be called once the server is made, before it answers."""
    gc.freeze()  # what is here now stays: collections look only at what calls left, and come the earlier
    if (option := budget.of_glibc("mallopt")) is not None:
        option(_M_ARENA_MAX, _HEAPS)


def give_back() -> None:
    """Drop what only knows itself, and let the system have the pages that nothing is on.

    A profile and what it derived know each other: without a collection its files would stay open for long.
    """
    gc.collect()
    budget.give_back()
