"""Reading many ranks at once: files are shared out among workers, who open them, keep them, and reduce their parts.

Workers are processes of this machine, or a Dask cluster that is already there (on SLURM, one that dask-jobqueue
started). Nobody opens a file twice: what opening tells comes back, then the small tables of each question do. Files
must be where a worker can see them under the same path.

A task has a number; tasks of the same number go to the same worker, which has the files open.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import polars as pl

from stepscope import progress, store
from stepscope.api.share import Opening, Share, Task, describe, shares, work
from stepscope.errors import BadInput, extra
from stepscope.files import budget
from stepscope.files.pool import Died, Pool
from stepscope.model.note import Note
from stepscope.model.source import Source
from stepscope.sources.described import DescribedSource
from stepscope.sources.detect import Kind
from stepscope.sources.open import open_found

#: Number, function and arguments.
Tasks = Sequence[tuple[int, Callable[..., Any], tuple[Any, ...]]]

_CONNECT_S = 10
#: Times that a task of a cluster is tried again where it failed, beside those of workers that died.
_RETRIES = 2
#: Taken for the size of a cluster that has no worker yet: it may start them as tasks come.
_UNKNOWN_SIZE = 8


class Crew(Protocol):
    """Workers."""

    def size(self) -> int:
        """How many tasks can run at once."""
        ...

    def run(self, tasks: Tasks) -> Generator[tuple[int, Any], None, None]:
        """The answers, each with the place of its task, as they come."""
        ...


class Processes:
    """So many fresh processes: Polars' threads do not survive a fork."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        memory = max(budget.LEAST, budget.total() // (jobs + 1))  # which all of them keep to together
        self._pool = Pool(jobs, _working, memory, threads=max(1, (os.cpu_count() or 1) // jobs))

    def size(self) -> int:
        return self._jobs

    def run(self, tasks: Tasks) -> Generator[tuple[int, Any], None, None]:
        try:
            yield from self._pool.run(tasks)
        except Died:
            raise BadInput(
                "a worker process died (out of memory?)", "give --jobs 1, or fewer than there are cores"
            ) from None


class Cluster:
    """The Dask cluster whose scheduler is at `address`, or wrote that file. Others do what a dead worker had to."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._workers: list[str] = []

    def size(self) -> int:
        with _client(self._address) as client:
            threads = client.nthreads()
        self._workers = sorted(threads)
        return sum(threads.values()) or _UNKNOWN_SIZE

    def run(self, tasks: Tasks) -> Generator[tuple[int, Any], None, None]:
        distributed: Any = import_module("distributed")
        with _client(self._address) as client:
            there = set(client.nthreads())
            futures = {}
            for place, (number, function, args) in enumerate(tasks):
                at = self._workers[number % len(self._workers)] if self._workers else None
                where = {"workers": [at], "allow_other_workers": True} if at in there else {}
                futures[client.submit(function, *args, pure=False, retries=_RETRIES, **where)] = place
            try:
                for future, answer in distributed.as_completed(futures, loop=client.loop, with_results=True):
                    yield futures[future], answer
            except distributed.KilledWorker as error:
                raise BadInput(
                    f"--cluster: workers died again and again at the same files ({error})",
                    "give the workers more memory",
                ) from None
            finally:
                client.cancel(list(futures), force=True)


@contextmanager
def _working(memory: int) -> Iterator[None]:
    """In a worker: its budget; and where it is told to end, what would be written to the cache is left."""
    budget.keep(memory)
    try:
        yield
    except SystemExit:
        store.drop()
        raise


@contextmanager
def _client(address: str) -> Iterator[Any]:
    try:
        connect: Any = import_module("distributed").Client
    except ImportError:
        raise BadInput("--cluster needs Dask", extra("cluster")) from None
    try:
        client = connect(**_scheduler(address), timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        hint = "give its address, tcp://host:8786, or the file of `dask scheduler --scheduler-file`"
        raise BadInput(f"--cluster {address}: no scheduler there ({error})", hint) from None
    try:
        yield client
    finally:
        client.close()


def _scheduler(address: str) -> dict[str, str]:
    """How Dask is told where the scheduler is. One that was just started writes its file soon."""
    if not address.endswith(".json"):
        return {"address": address}
    until = time.monotonic() + _CONNECT_S
    while not Path(address).is_file():
        if time.monotonic() > until:
            raise FileNotFoundError("no such file")
        time.sleep(0.05)
    return {"scheduler_file": address}


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
        descriptions = [description for share in self._ask("opening files", asked, describe) for description in share]
        for source, description in zip(sources, descriptions, strict=True):
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
