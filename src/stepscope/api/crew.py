"""Who works: processes of this machine that stay for as long as the profile is open, or a Dask cluster.

A task has a number; tasks of the same number go to the same worker, which has the files open.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from stepscope import progress
from stepscope.errors import BadInput, extra
from stepscope.files import budget

#: Number, function and arguments.
Tasks = Sequence[tuple[int, Callable[..., Any], tuple[Any, ...]]]

_CONNECT_S = 10
#: How often to look whether the answers are still wanted.
_LOOK_S = 0.1
#: Times that a task of a cluster is tried again where it failed, beside those of workers that died.
_RETRIES = 2
#: Taken for the size of a cluster that has no worker yet: it may start them as tasks come.
_UNKNOWN_SIZE = 8


class Crew(Protocol):
    """Workers."""

    def size(self) -> int:
        """How many tasks can run at once."""
        ...

    def run(self, tasks: Tasks) -> Iterator[tuple[int, Any]]:
        """The answers, each with the place of its task, as they come."""
        ...


class Processes:
    """So many fresh processes: Polars' threads do not survive a fork."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._pools: list[Executor] = []

    def size(self) -> int:
        return self._jobs

    def run(self, tasks: Tasks) -> Iterator[tuple[int, Any]]:
        if not self._pools:
            self._pools = [_pool(self._jobs) for _ in range(self._jobs)]
            weakref.finalize(self, _end, self._pools)
        with _threads(self._jobs):  # processes start with their first task
            futures: dict[Future[Any], int] = {
                self._pools[number % self._jobs].submit(function, *args): place
                for place, (number, function, args) in enumerate(tasks)
            }
        try:
            for future in _as_completed(futures):
                yield futures[future], future.result()
        except progress.Stopped:  # what they are at nobody wants
            _kill(self._pools)
            self._pools = []
            raise
        except BrokenProcessPool:
            self._pools = []
            raise BadInput(
                "a worker process died (out of memory?)", "give --jobs 1, or fewer than there are cores"
            ) from None
        except BaseException:
            for future in futures:
                future.cancel()
            raise


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

    def run(self, tasks: Tasks) -> Iterator[tuple[int, Any]]:
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


def _pool(of: int) -> Executor:
    """One of so many processes, which keep to the budget of memory together."""
    memory = max(budget.LEAST, budget.total() // (of + 1))
    if multiprocessing.current_process().daemon:  # a worker of somebody's Pool may not have any of its own
        return ThreadPoolExecutor(1)
    try:
        return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin, (memory,))
    except OSError:  # no semaphores, as where /dev/shm is read-only: a thread reads the files in turn
        return ThreadPoolExecutor(1)


def _as_completed(futures: Iterable[Future[Any]]) -> Iterator[Future[Any]]:
    """The futures as they are done, with a look in between whether they are still wanted."""
    left = set(futures)
    while left:
        done, left = wait(left, _LOOK_S, FIRST_COMPLETED)
        if not done:
            progress.check()
        yield from done


def _kill(pools: list[Executor]) -> None:
    for pool in pools:
        processes = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()


def _end(pools: list[Executor]) -> None:
    for pool in pools:
        pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _threads(jobs: int) -> Iterator[None]:
    """Processes that start here use as many threads as there are cores together."""
    saved = os.environ.get("POLARS_MAX_THREADS")
    os.environ["POLARS_MAX_THREADS"] = saved or str(max(1, (os.cpu_count() or 1) // jobs))
    try:
        yield
    finally:
        if saved is None:
            del os.environ["POLARS_MAX_THREADS"]


def _begin(memory: int) -> None:
    """In a worker: its budget. If whoever started it is killed, it ends, rather than wait for work for ever."""
    budget.keep(memory)

    def watch() -> None:
        if (parent := multiprocessing.parent_process()) is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


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
