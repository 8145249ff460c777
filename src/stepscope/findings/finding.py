"""What a detector says."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from stepscope.intervals import Spans
from stepscope.model.result import Result

Confidence = Literal["high", "medium", "low"]


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

    A detector's `confidence` says what its figure rests on: `high` where the recorded dependencies, replayed without
    the fault, give the time back; `medium` where a part of the reasoning is a comparison with what is usual; `low`
    where the figure is an upper bound only. What a reader gets is the width of the interval (`calibration.py`).
    """

    id: str
    title: str
    recoverable_ns: int
    confidence: Confidence
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
    #: an upper bound without a known remedy: it comes after promises of like size
    open_end: bool = False
    #: it qualifies all other findings: first, and shown however little it could give back
    warns: bool = False
    #: ranks or links that stand out beside others, as `stragglers` names them: listed where asked for all (--least 0),
    #: even if the step gives nothing back, since others had to wait anyway
    stands_out: bool = False


@dataclass(frozen=True)
class Skipped:
    """A detector that could not look: never the same as one that found nothing."""

    id: str
    why: str


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Warnings, then most recoverable first; what has no remedy counts half."""
    return sorted(findings, key=lambda f: (not f.warns, -f.recoverable_ns // (1 + f.open_end), f.id, f.ranks))


def for_profile(result: Result, words: Sequence[str]) -> Result:
    """The findings with command lines for the files and rules as the user named them: detectors know of neither."""
    command = pl.col("command").cast(pl.String)  # of no findings at all, a column without a type
    named = command.str.replace(" PROFILE", f" {shlex.join(words)}", literal=True)
    result.rows = result.rows.with_columns(named)
    return result
