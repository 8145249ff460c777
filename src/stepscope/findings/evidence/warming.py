"""Which episodes of a run are its warm-up."""

from __future__ import annotations

from stepscope.findings.run.episodes import Episode

#: Causes that come once, wherever they come; and those that warm up where they are in the first steps alone.
_ONCE = ("compile", "trial")
_AT_FIRST = ("allocator", "host", "sync", "slower kernels", "communication")


def warms_up(e: Episode) -> bool:
    """Whether it is compiling or trying out, or the first steps of the capture are longer for no other reason.

    That input is late there has to be recorded: before its first batches a program does much else.
    """
    at_first = e.cause in _AT_FIRST or (e.cause == "input" and not e.why.recorded)
    return e.cause in _ONCE or (at_first and e.first and not e.every)
