"""Reading many ranks at once: every source's part of a profile is reduced by a worker of its own.

Workers are whatever has the interface of `concurrent.futures`: processes of this machine, or a Dask cluster that is
already there (on SLURM, one that dask-jobqueue started). A worker opens one file at a time, reduces it, and sends back
the small tables; files must be where it can see them under the same path.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from stepscope import progress
from stepscope.errors import BadInput
from stepscope.model.label_rules import LabelRules
from stepscope.model.note import Note
from stepscope.model.profile import Profile
from stepscope.model.taxonomy import Taxonomy
from stepscope.sources.open import open_sources
from stepscope.store import cached

T = TypeVar("T")

#: Starting processes pays from this much to read on.
_WORTH_BYTES = 64_000_000
_CONNECT = "10s"


@dataclass(frozen=True)
class Opening:
    """How a file was opened, so that a worker opens it the same way."""

    cache: bool = True
    nsys: str | None = None
    rules: Taxonomy | None = None
    labels: LabelRules | None = None


@dataclass(frozen=True)
class Workers:
    """Where parts are reduced: `jobs` processes (None: as many as there are cores, where it pays), or a cluster."""

    jobs: int | None = 1
    cluster: str | None = None
    opening: Opening = Opening()

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise BadInput(f"--jobs {self.jobs}: too few", "give 1 or more")

    def wanted(self, paths: Sequence[Path]) -> int:
        """How many processes for these files; 1 means none but this one."""
        if self.cluster is not None:
            return len(paths)
        if self.jobs is not None:
            return min(self.jobs, len(paths))
        size = sum(p.stat().st_size for p in paths if p.is_file())
        return min(os.cpu_count() or 1, len(paths)) if size >= _WORTH_BYTES else 1

    def map(
        self, parts: Sequence[tuple[Path, pl.DataFrame]], function: Callable[..., T], args: tuple[Any, ...]
    ) -> Iterator[tuple[T, list[Note]]]:
        """`function(part, *args)` of every part, in order, with what was noted while reading it."""
        with self._executor(len(parts)) as executor:
            futures = [executor.submit(work, p.absolute(), r, self.opening, function, args) for p, r in parts]
            progress.report("reading ranks, file", 0, len(futures))  # the first takes a while: processes start
            try:
                for done, _ in enumerate(_completed(futures), 1):
                    progress.report("reading ranks, file", done, len(futures))
                yield from [f.result() for f in futures]
            except BrokenProcessPool:
                raise BadInput(
                    "a worker process died (out of memory?)", "give --jobs 1, or fewer than there are cores"
                ) from None
            except BaseException:
                for future in futures:
                    future.cancel()
                raise

    @contextmanager
    def _executor(self, parts: int) -> Iterator[Executor]:
        if self.cluster is None:
            with _processes(min(self.jobs or os.cpu_count() or 1, parts)) as pool:
                yield pool
            return
        client = _client(self.cluster)
        try:
            yield client.get_executor()
        finally:
            client.close()


def work(
    path: Path, ranks: pl.DataFrame, opening: Opening, function: Callable[..., T], args: tuple[Any, ...]
) -> tuple[T, list[Note]]:
    """In a worker: open one file, give its processes the ranks they have in the whole profile, and reduce it."""
    sources = open_sources([path], nsys=opening.nsys, wrap=cached if opening.cache else None)
    part = Profile(sources, opening.rules, opening.labels)
    part.ranks = ranks.with_columns(pl.lit(0, pl.Int32).alias("source"))
    before = set(part.notes)
    result = function(part, *args)
    return result, [n for n in part.notes if n not in before]


@contextmanager
def _processes(jobs: int) -> Iterator[Executor]:
    """Fresh processes: Polars' threads do not survive a fork. Together they use as many threads as there are cores."""
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    saved = os.environ.get("POLARS_MAX_THREADS")
    os.environ["POLARS_MAX_THREADS"] = saved or threads
    try:
        with _pool(jobs) as pool:
            yield pool
    finally:
        if saved is None:
            del os.environ["POLARS_MAX_THREADS"]


def _pool(jobs: int) -> Executor:
    try:
        return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _end_with_parent)
    except OSError:  # no semaphores, as where /dev/shm is read-only: a thread reads the files in turn
        return ThreadPoolExecutor(1)


def _end_with_parent() -> None:
    """In a worker: if whoever started it is killed, it ends, rather than wait for work for ever."""

    def wait() -> None:
        if (parent := multiprocessing.parent_process()) is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _completed(futures: list[Future[T]]) -> Iterator[Future[T]]:
    """As they are done; Dask's futures are waited for by asking them."""
    if all(isinstance(f, Future) for f in futures):
        yield from as_completed(futures)
        return
    for future in futures:
        future.result()
        yield future


def _client(address: str) -> Any:
    try:
        client: Any = import_module("distributed").Client
    except ImportError:
        raise BadInput("--cluster needs Dask", "pip install 'stepscope[cluster]'") from None
    try:
        return client(address, timeout=_CONNECT, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        hint = "give its address: tcp://host:8786"
        raise BadInput(f"--cluster {address}: no scheduler there ({error})", hint) from None
