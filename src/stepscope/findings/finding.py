"""What a detector says."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from stepscope.intervals import Spans
from stepscope.model.result import Result

#: How sure the cause is: recorded, inferred by a rule, or one that fits.
Cause = Literal["certain", "likely", "possible"]


@dataclass(frozen=True)
class Place:
    """Where to look: on one rank, in its own time; `stream` where one is meant."""

    rank: int
    start_ns: int
    end_ns: int
    stream: int | None = None


@dataclass(frozen=True)
class Finding:
    """Something that costs time, with what it rests on. `recoverable_ns` is per step, and never more than `rests_on`.

    Two things can be unsure: the `cause`, and how much taking it away gives. The latter is the interval
    (`calibration.py`); a figure that is only an upper bound is a `bound`.
    """

    id: str
    title: str
    recoverable_ns: int
    cause: Cause
    evidence: str
    try_next: str
    #: a command that prints `figures`, and its options: `("idle", "--by cause")`. Profile and window are not named here
    #: (`citation`), except that `--rank` limits it to ranks of the finding
    command: tuple[str, str]
    ranks: tuple[int, ...] = ()
    #: figures of the evidence as the command prints them (nanoseconds, per cent), or as the sum of rows of one rank
    figures: tuple[float, ...] = ()
    stage: str | None = None
    where: tuple[Place, ...] = field(default=())
    #: the interval of `recoverable_ns`, 90 %; a detector states it only where it knows better than `calibration.toml`
    low_ns: int | None = None
    high_ns: int | None = None
    #: exposed time that it speaks of, by rank, in the rank's own time: what no finding covers is one (`residual`)
    covers: Mapping[int, Spans] = field(default_factory=dict)
    #: `recoverable_ns` is only an upper bound: "up to"
    bound: bool = False
    #: it is a property of the capture, and qualifies all other findings: said above them, however little it gives back
    warns: bool = False
    #: ranks or links that stand out beside others, as `stragglers` names them: listed where asked for all (--least 0),
    #: even if the step gives nothing back, since others had to wait anyway
    stands_out: bool = False
    #: it is of the run, not of its usual step: what it gives back is the mean over all steps
    of_run: bool = False
    #: which step the evidence shows, on the ranks of `command`, where it is not the one that is looked at
    index: int | None = None

    @property
    def expected_ns(self) -> int:
        """What is promised; of an upper bound the middle between it and nothing."""
        return self.recoverable_ns // 2 if self.bound else self.recoverable_ns


@dataclass(frozen=True)
class Skipped:
    """A detector that could not look: never the same as one that found nothing."""

    id: str
    why: str


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Warnings, then by what is expected of them."""
    return sorted(findings, key=lambda f: (not f.warns, -f.expected_ns, f.id, f.ranks))


def for_profile(result: Result, words: Sequence[str]) -> Result:
    """The findings with command lines for the files and rules as the user named them: detectors know of neither."""
    command = pl.col("command").cast(pl.String)  # of no findings at all, a column without a type
    named = command.str.replace(" PROFILE", f" {shlex.join(words)}", literal=True)
    result.rows = result.rows.with_columns(named)
    return result
