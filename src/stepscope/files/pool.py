"""Fresh processes that do what they are handed. They end with whoever made them, whatever either of them is at.

Each has a pipe of its own, and nothing stands between: no thread, no queue, no lock that somebody who is gone could
hold. A process that is idle, or only begins, waits for its pipe, which the end of its owner closes; one that works is
told by a signal, puts away what lies about, and is killed where that takes long.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing import connection, resource_tracker
from multiprocessing.reduction import ForkingPickler
from types import FrameType
from typing import Any, NoReturn

from stepscope import progress
from stepscope.errors import BadInput, StepscopeError
from stepscope.files import leaving
from stepscope.files.signals import undisturbed

#: Which process is to do it (None: the first that is free), a function and its arguments.
Task = tuple[int | None, Callable[..., Any], tuple[Any, ...]]

#: How often to look whether the answers are still wanted.
_LOOK_S = 0.1
#: Seconds in which a process that is told to end puts away its temporary folders; then it is killed.
_GRACE_S = 0.5
#: Seconds that one with nothing to do gets to write what it keeps in the cache.
_LAST_S = 10.0
#: Ctrl-C on a terminal, and a terminal that closes, are for all processes in it: ours are ended by who made them.
_OF_TERMINALS = (signal.SIGINT, signal.SIGHUP)

#: Of this process: a forked child has no part in its parent's.
_all: dict[int, list[_Worker]] = {}
_guard = threading.RLock()  # a signal may come to who has it


class Died(Exception):
    """A process ended that was to answer."""


class Pool:
    """So many processes, each started with its first task. `around` is what each works within."""

    def __init__(
        self, size: int, around: Callable[..., AbstractContextManager[None]], *given: Any, threads: int | None = None
    ) -> None:
        self._size, self._first, self._threads = size, (around, given), threads
        self._workers: dict[int, _Worker] = {}
        self._turn = threading.Lock()
        weakref.finalize(self, _dismiss, self._workers)

    def run(self, tasks: Sequence[Task]) -> Generator[tuple[int, Any], None, None]:
        """The answers as they come, each with the place of its task. Close it where they are not read to the end."""
        if multiprocessing.current_process().daemon:  # a worker of somebody's pool may not have any of its own
            for place, (_, function, given) in enumerate(tasks):
                yield place, function(*given)
            return
        with self._alone():
            try:
                yield from self._answers(tasks)
            except Exception:  # the others may end what they are at, and are asked again
                for worker in self._workers.values():
                    worker.place = None
                raise
            except BaseException:  # nobody wants it any more
                self.end()
                raise

    def end(self) -> None:
        """All of them, whatever they are at."""
        with undisturbed():
            _end(self._workers.values())
            self._workers.clear()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Several threads may ask: one after the other."""
        while not self._turn.acquire(timeout=_LOOK_S):
            progress.check()
        try:
            yield
        finally:
            self._turn.release()

    def _answers(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Any]]:
        own: list[deque[int]] = [deque() for _ in range(self._size)]
        anyone: deque[int] = deque()
        for place, (number, _, _) in enumerate(tasks):
            (anyone if number is None else own[number % self._size]).append(place)

        def go_on(number: int) -> None:
            if waiting := own[number] or anyone:
                place = waiting.popleft()
                self._worker(number).ask(place, *tasks[place][1:])

        for number in range(self._size):
            if number not in self._workers or not self._workers[number].busy:
                go_on(number)
        answered = 0
        while answered < len(tasks):
            busy = {worker.pipe: number for number, worker in self._workers.items() if worker.busy}
            ready = connection.wait(list(busy), _LOOK_S)
            if not ready:
                progress.check()
            for pipe in ready:
                number = busy[pipe]  # type: ignore[index]  # a pipe is what was given
                asked = self._workers[number].place
                heard = self._heard(number)
                if heard is None:
                    continue
                go_on(number)
                well, answer = heard
                if asked is None:  # of a question that failed elsewhere
                    continue
                if not well:
                    raise answer
                answered += 1
                yield asked, answer

    def _worker(self, number: int) -> _Worker:
        if number not in self._workers:
            with undisturbed():
                self._workers[number] = _Worker(self._first, self._threads)
        return self._workers[number]

    def _heard(self, number: int) -> tuple[bool, Any] | None:
        try:
            return self._workers[number].heard()
        except (EOFError, OSError):
            self.end()
            raise Died from None


class _Worker:
    """One process, from outside."""

    def __init__(self, first: tuple[Any, ...], threads: int | None) -> None:
        self.pipe, other = multiprocessing.Pipe()
        self.place: int | None = None  # of the task that it is at; None where nobody waits for it
        self.busy = False
        self._begun = False
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=_serve, args=(other, *first), daemon=True)
        try:
            resource_tracker.ensure_running()  # it changes which signals get through
            with _threads(threads), _without(_OF_TERMINALS):
                self.process.start()
        except OSError as error:
            self.pipe.close()
            raise BadInput(f"no process can be started to share the work ({error})", "give --jobs 1") from None
        finally:
            other.close()
        with _guard:
            own = _all[os.getpid()] = [w for w in _all.get(os.getpid(), []) if w.process.is_alive()]
            own.append(self)

    def ask(self, place: int, function: Callable[..., Any], given: tuple[Any, ...]) -> None:
        data = ForkingPickler.dumps((function, given))
        self.place, self.busy = place, True
        with suppress(OSError):  # it is gone: the answer says so
            self.pipe.send_bytes(data)

    def heard(self) -> tuple[bool, Any] | None:
        """Whether it could do what it was asked, and the answer or what went wrong; None: it says that it is there."""
        data = self.pipe.recv_bytes()
        if not data:
            self._begun = True
            return None
        self.busy = False
        well, answer = pickle.loads(data)
        return well, answer

    def dismiss(self) -> None:
        """It may write what it keeps for later; what it computes nobody wants."""
        if self.busy:
            self.tell()
        with suppress(OSError):
            self.pipe.send_bytes(b"")
        self.pipe.close()

    def tell(self) -> None:
        """To end now. One that only begins has nothing to put away."""
        with suppress(OSError):
            while not self._begun and self.pipe.poll():
                self._begun = not self.pipe.recv_bytes()
        with suppress(EOFError, OSError, AttributeError):
            self.process.terminate() if self._begun else self.process.kill()


def _dismiss(workers: dict[int, _Worker]) -> None:
    """Nobody asks them any more."""
    with _guard:
        own = _all.get(os.getpid(), [])
    for worker in workers.values():
        if worker in own:
            worker.dismiss()


def _end(workers: Iterable[_Worker]) -> None:
    workers = list(workers)
    for worker in workers:
        worker.tell()
    _wait(workers, _GRACE_S)
    for worker in workers:
        worker.pipe.close()


def _wait(workers: Sequence[_Worker], seconds: float) -> None:
    """Until they have ended; they are killed where that takes longer."""
    until = time.monotonic() + seconds
    for worker in workers:
        worker.process.join(max(0.0, until - time.monotonic()))
    for worker in workers:
        worker.process.kill()
        worker.process.join()


@leaving.ends_work
def end_all() -> None:
    """All of this process, whatever they are at."""
    with _guard:
        workers = _all.pop(os.getpid(), [])
    _end(workers)


@atexit.register
def _dismiss_all() -> None:
    with _guard:
        workers = _all.pop(os.getpid(), [])
    for worker in workers:
        worker.dismiss()
    _wait([w for w in workers if w.busy], _GRACE_S)
    _wait([w for w in workers if not w.busy], _LAST_S)


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Processes that start here have so many threads for tables, unless the user says how many."""
    name = "POLARS_MAX_THREADS"
    if count is None or name in os.environ:
        yield
        return
    os.environ[name] = str(count)
    try:
        yield
    finally:
        os.environ.pop(name, None)


@contextmanager
def _without(numbers: Iterable[signal.Signals]) -> Iterator[None]:
    """Processes that start here do not get these signals."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(
    pipe: connection.Connection, around: Callable[..., AbstractContextManager[None]], given: tuple[Any, ...]
) -> None:
    """In a process of a pool: answer until there is nobody to ask."""
    for number in _OF_TERMINALS:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_watch, daemon=True).start()
    with around(*given), suppress(EOFError, OSError):
        pipe.send_bytes(b"")  # from here on there may be something to put away
        while task := pipe.recv_bytes():
            pipe.send_bytes(_answer(task))


def _answer(task: bytes) -> memoryview:
    try:
        function, given = pickle.loads(task)
        return ForkingPickler.dumps((True, function(*given)))
    except SystemExit:
        raise
    except BaseException as error:  # a panic of Polars is not an Exception
        return _failure(error)


def _failure(error: BaseException) -> memoryview:
    """An error as it was raised, or what it says where it cannot be pickled."""
    where = traceback.format_exc()
    if isinstance(error, StepscopeError):
        return ForkingPickler.dumps((False, error))
    try:
        error.add_note(where)
        data = ForkingPickler.dumps((False, error))
        pickle.loads(data)
        return data
    except Exception:
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        plain.add_note(where)
        return ForkingPickler.dumps((False, plain))


def _leave(number: int, _: FrameType | None) -> NoReturn:
    """What is on the way out puts away its own."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def _watch() -> None:
    """If whoever started it is killed, it ends, rather than compute on."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE_S)
        os._exit(1)
