"""A process that was forked from one that computed: Polars' threads are not there, and it would wait for ever."""

from __future__ import annotations

import os

from stepscope.errors import BadInput

#: The process that computed first.
_first: int | None = None


def refuse() -> None:
    """To be called before anything is computed: one line where it would never end."""
    global _first
    if _first is None:
        _first = os.getpid()
    elif _first != os.getpid():
        raise BadInput(
            "this process was forked from one that has used stepscope, and Polars does not survive a fork",
            'start it by multiprocessing.get_context("spawn"), or hand it the Profile: it can be pickled',
        )
