"""The steps of a program as whoever captured it timed them: all of them, recorded or not."""

from __future__ import annotations

from msgspec import Struct

from stepscope.model.threshold import Threshold

SETTLING = Threshold(
    2,
    "steps",
    "a program settles: first uses, and memory that is taken for the first time",
    ("tests/findings/test_pace.py", "tests/data/pairs"),
)


class ProgramSteps(Struct, frozen=True):
    """In the order of the program; means over ranks, from the end of the step before to the own end, on the host."""

    lengths_ns: list[float]
    #: which were under the profiler
    recorded: list[bool]
    #: which say how long a step takes without one
    counted: list[bool]
    #: steps before the first of these
    untimed: int = 0
