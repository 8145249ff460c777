"""Reading many ranks at once: files are shared out among workers, who open them, keep them, and reduce their parts.

Workers are processes of this machine, or a Dask cluster that is already there (on SLURM, one that dask-jobqueue
started). Nobody opens a file twice: what opening tells comes back, then the small tables of each question do. Files
must be where a worker can see them under the same path.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import polars as pl

from stepscope import progress
from stepscope.api.crew import Cluster, Crew, Processes
from stepscope.api.share import Opening, Share, Task, describe, shares, work
from stepscope.errors import BadInput
from stepscope.model.note import Note
from stepscope.model.source import Source
from stepscope.sources.described import DescribedSource
from stepscope.sources.detect import Kind
from stepscope.sources.open import open_found

T = TypeVar("T")

#: Starting processes pays from this much to read on; a file costs as much as so many bytes, however small it is.
_WORTH_BYTES, _A_FILE_BYTES = 64_000_000, 250_000
#: Shares per worker, so that all are busy to the end, and files of a share at most: what a dead worker costs.
_PER_WORKER, _MOST_FILES = 8, 64


@dataclass(frozen=True)
class Workers:
    """Who reads: `jobs` processes (None: as many as there are cores, where it pays), or a cluster."""

    jobs: int | None = 1
    cluster: str | None = None
    opening: Opening = field(default_factory=Opening)

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise BadInput(f"--jobs {self.jobs}: too few", "give 1 or more")

    def open(self, found: Sequence[tuple[Path, Kind]]) -> tuple[list[Source], Sharing | None]:
        """The files as sources, and how they are shared out; this process alone opens what is not worth sharing."""
        crew = self._crew([path for path, _ in found])
        if crew is None:
            return open_found(found, nsys=self.opening.nsys, wrap=self.opening.wrap), None
        found = [(path.absolute(), kind) for path, kind in found] if self.cluster else found
        sharing = Sharing(crew, self.opening, found)
        return sharing.sources(), sharing

    def _crew(self, paths: Sequence[Path]) -> Crew | None:
        if len(paths) < 2:
            return None
        if self.cluster is not None:
            return Cluster(self.cluster)
        jobs = self.jobs
        if jobs is None:
            size = sum(p.stat().st_size for p in paths if p.is_file()) + _A_FILE_BYTES * len(paths)
            jobs = os.cpu_count() or 1 if size >= _WORTH_BYTES else 1
        return Processes(min(jobs, len(paths))) if min(jobs, len(paths)) > 1 else None


class Sharing:
    """The files of a job, shared out among a crew."""

    def __init__(self, crew: Crew, opening: Opening, found: Sequence[tuple[Path, Kind]]) -> None:
        self._crew, self._opening, self._found = crew, opening, found

    @cached_property
    def _shares(self) -> list[Share]:
        each = -(-len(self._found) // (_PER_WORKER * self._crew.size()))
        return shares(self._found, self._opening, uuid4().hex, min(each, _MOST_FILES))

    @cached_property
    def _place(self) -> dict[Path, tuple[int, int]]:
        """Share and number in it of every file."""
        return {path: (s.number, i) for s in self._shares for i, (path, _) in enumerate(s.files)}

    def sources(self) -> list[Source]:
        """All files, opened by the crew."""
        sources = [DescribedSource(item[0], self._opening.opener(item)) for item in self._found]
        asked: list[tuple[Share, int, tuple[Any, ...]]] = [(share, len(share.files), ()) for share in self._shares]
        told = [description for share in self._ask("opening files", asked, describe) for description in share]
        for source, description in zip(sources, told, strict=True):
            source.describe(description)
        return list(sources)

    def map(
        self,
        parts: dict[Path, pl.DataFrame],
        task: Callable[[dict[int, pl.DataFrame]], Task],
    ) -> tuple[list[Any], dict[Path, list[Note]]]:
        """What a task says of the parts, in order, or of shares of them, joined; and new notes by file."""
        ranks: dict[int, dict[int, pl.DataFrame]] = {}
        for path, frame in parts.items():
            number, i = self._place[path]
            ranks.setdefault(number, {})[i] = frame
        asked = [(self._shares[n], len(frames), (task(frames),)) for n, frames in ranks.items()]
        answers: list[Any] = []
        notes: dict[Path, list[Note]] = {}
        for number, (said, noted) in zip(ranks, self._ask("reading ranks, file", asked, work), strict=True):
            answers += said
            notes |= {self._shares[number].files[i][0]: new for i, new in noted.items()}
        return answers, notes

    def _ask(self, what: str, asked: list[tuple[Share, int, tuple[Any, ...]]], function: Callable[..., T]) -> list[T]:
        total, done = sum(files for _, files, _ in asked), 0
        progress.report(what, 0, total)  # the first takes a while: processes start
        answers: dict[int, T] = {}
        tasks = [(share.number, function, (share, *args)) for share, _, args in asked]
        with closing(self._crew.run(tasks)) as coming:
            for i, answer in coming:
                answers[i] = answer
                done += asked[i][1]
                progress.report(what, done, total)
        return [answers[i] for i in range(len(asked))]
