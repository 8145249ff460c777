"""Who works: processes of this machine that stay for as long as the profile is open, or a Dask cluster.

A task has a number; tasks of the same number go to the same worker, which has the files open.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from stepscope import store
from stepscope.errors import BadInput, extra
from stepscope.files import budget
from stepscope.files.pool import Died, Pool

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
