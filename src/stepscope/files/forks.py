"""A process that was forked from one that computed: Polars' threads are not there, and it would wait for ever."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from stepscope.errors import BadInput

#: The process that computed first.
_first: int | None = None
#: A sum of two numbers that takes longer never ends.
_ENDS_S = 5.0
_TASKS = Path("/proc/self/task")


def refuse() -> None:
    """To be called before anything is computed: one line where it would never end."""
    global _first
    if _first is None:
        if _without_threads() and not _computes():
            raise _refusal("has used Polars")
        _first = os.getpid()
    elif _first != os.getpid():
        raise _refusal("has used stepscope")


def _refusal(why: str) -> BadInput:
    return BadInput(
        f"this process was forked from one that {why}, and Polars does not survive a fork",
        'start it by multiprocessing.get_context("spawn"), or hand it the Profile: it can be pickled',
    )


def _without_threads() -> bool:
    """Whether Polars is loaded, as by who forked us, and none of its threads runs: it starts them when it computes."""
    try:
        names = [(task / "comm").read_text() for task in _TASKS.iterdir()]
    except OSError:  # no Linux: nothing is forked there unless one asks for it
        return False
    return "polars" in sys.modules and not any(name.startswith("polars") for name in names)


def _computes() -> bool:
    """Whether Polars comes to an end with two sums, which it gives to its threads."""
    import polars as pl

    ended = threading.Event()

    def compute() -> None:
        pl.DataFrame({"a": [1], "b": [1]}).select(pl.col("a").sum(), pl.col("b").sum())
        ended.set()

    threading.Thread(target=compute, daemon=True).start()
    return ended.wait(_ENDS_S)
