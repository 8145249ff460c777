"""What one worker does: open some of the files of a job, keep them open, and reduce their parts of the profile.

A share is opened once. Whoever reduces it later without having opened it (another worker died) opens it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import polars as pl

from stepscope.model.label_rules import LabelRules
from stepscope.model.note import Note
from stepscope.model.profile import Known, Profile
from stepscope.model.source import Source
from stepscope.model.taxonomy import Taxonomy
from stepscope.sources.described import Description
from stepscope.sources.detect import Kind
from stepscope.sources.open import Wrap, opener_of
from stepscope.store import cached

T = TypeVar("T")


@dataclass(frozen=True)
class Opening:
    """How files are opened, so that a worker opens them the same way."""

    cache: bool = True
    nsys: str | None = None
    rules: Taxonomy | None = None
    labels: LabelRules | None = None

    @property
    def wrap(self) -> Wrap | None:
        return cached if self.cache else None

    def opener(self, item: tuple[Path, Kind]) -> Callable[[], Source]:
        """What opens one of the profiles that were found."""
        return opener_of(item, nsys=self.nsys, wrap=self.wrap)


@dataclass(frozen=True)
class Share:
    """Files that one worker opens, in order; `job` tells one opening from another, which may find other content."""

    job: str
    number: int
    files: tuple[tuple[Path, Kind], ...]
    opening: Opening


@dataclass(frozen=True)
class Task:
    """What is asked of the parts of a share: ranks of the whole profile, by file of the share."""

    ranks: dict[int, pl.DataFrame]
    recorded: frozenset[str]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    options: dict[str, Any]
    joined: Callable[[list[Any]], Any] | None = None


#: Openings of which a worker keeps the files open: a cluster outlives them.
_MOST_JOBS = 4
#: By opening, the last one asked for last: the sources of the shares that this worker opened.
_kept: dict[str, dict[int, list[Source]]] = {}
_guard = Lock()


def describe(share: Share) -> list[Description]:
    """In a worker: open the files of a share."""
    return [Description.of(source) for source in _opened(share)]


def work(share: Share, task: Task) -> tuple[list[Any], dict[int, list[Note]]]:
    """In a worker: what the function says of each part, joined to one where that was asked for; and new notes by file.

    Parts have the ranks that they have in the whole profile.
    """
    sources = _opened(share)
    before = {i: set(sources[i].quality.notes) for i in task.ranks}
    frames = [frame.with_columns(pl.lit(i, pl.Int32).alias("source")) for i, frame in task.ranks.items()]
    known = Known(pl.concat(frames).sort("rank"), task.recorded)
    whole = Profile(sources, share.opening.rules, share.opening.labels, known)
    answers = list(whole.of_parts(whole.by_source(), task.function, *task.args, **task.options))
    notes = {i: [n for n in sources[i].quality.notes if n not in seen] for i, seen in before.items()}
    return answers if task.joined is None else [task.joined(answers)], notes


def _opened(share: Share) -> list[Source]:
    with _guard:
        kept = _kept[share.job] = _kept.pop(share.job, {})
        for other in list(_kept)[:-_MOST_JOBS]:
            del _kept[other]
    if share.number not in kept:
        kept[share.number] = [share.opening.opener(item)() for item in share.files]
    return kept[share.number]


def shares(found: Sequence[tuple[Path, Kind]], opening: Opening, job: str, most: int) -> list[Share]:
    """The files in shares of at most so many, in their order."""
    return [Share(job, n, tuple(found[i : i + most]), opening) for n, i in enumerate(range(0, len(found), most))]
