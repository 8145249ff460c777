"""Processes that share work: they answer, fail, die, and end with who made them, whatever either is at."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

import pytest

from stepscope import progress
from stepscope.errors import BadInput
from stepscope.files import pool as pools
from stepscope.files.pool import Died, Pool
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

#: A signal ends a command within this, whatever its workers are at: they get half a second, and machines are slow.
ENDS_S = 10.0


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    pool = Pool(2, nullcontext)
    yield pool
    pool.end()


def answers(pool: Pool, *tasks: pools.Task) -> list[object]:
    return [answer for _, answer in sorted(pool.run(tasks), key=lambda item: item[0])]


def _pid() -> int:
    return os.getpid()


def _fail(kind: type[BaseException]) -> None:
    raise kind("no good")


def _pause(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


class _Odd(Exception):
    """One that cannot be made again of what it was made of."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def _odd() -> None:
    raise _Odd(1, 2)


def test_tasks_of_a_number_go_to_one_process(pool: Pool) -> None:
    pids = answers(pool, *[(n, _pid, ()) for n in (0, 1, 2, 3)])
    assert pids[0] == pids[2] != pids[1] == pids[3]
    assert os.getpid() not in pids and pids == answers(pool, *[(n, _pid, ()) for n in (0, 1, 2, 3)])


def test_who_is_free_takes_what_has_no_number(pool: Pool) -> None:
    assert answers(pool, *[(None, abs, (-n,)) for n in range(20)]) == list(range(20))


def test_large_tasks_and_answers(pool: Pool) -> None:
    large = b"a" * 5_000_000
    assert answers(pool, *[(n, bytes.upper, (large,)) for n in range(4)]) == [large.upper()] * 4


@pytest.mark.parametrize("kind", [ValueError, MemoryError, BadInput])
def test_what_is_raised_arrives(pool: Pool, kind: type[BaseException]) -> None:
    with pytest.raises(kind, match="no good") as raised:
        answers(pool, (0, _fail, (kind,)))
    assert kind is BadInput or "in _fail" in "".join(raised.value.__notes__)


def test_what_cannot_be_pickled_is_said(pool: Pool) -> None:
    with pytest.raises(RuntimeError, match="_Odd: 1 and 2"):
        answers(pool, (0, _odd, ()))
    with pytest.raises((TypeError, AttributeError), match="pickle"):
        answers(pool, (0, threading.Lock, ()))
    with pytest.raises((TypeError, AttributeError), match="pickle"):
        answers(pool, (0, str, (threading.Lock(),)))


def test_after_a_failure_no_answer_is_of_the_question_before(pool: Pool) -> None:
    """The other process is still at its part of the question that failed."""
    with pytest.raises(ValueError, match="no good"):
        answers(pool, (0, _fail, (ValueError,)), (1, _pause, (0.3,)))
    assert answers(pool, (1, abs, (-1,)), (0, abs, (-2,))) == [1, 2]


def test_threads_ask_one_after_the_other(pool: Pool) -> None:
    got: dict[int, list[object]] = {}

    def ask(start: int) -> None:
        got[start] = answers(pool, *[(n, abs, (-start - n,)) for n in range(8)])

    threads = [threading.Thread(target=ask, args=(100 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert got == {100 * n: list(range(100 * n, 100 * n + 8)) for n in range(4)}


def test_one_that_dies_is_said_and_the_next_question_answered() -> None:
    pool = Pool(2, nullcontext)
    with pytest.raises(Died):
        answers(pool, (0, os._exit, (1,)), (1, _pause, (0,)))
    assert answers(pool, (0, abs, (-1,)), (1, abs, (-2,))) == [1, 2]
    pool.end()


def test_work_that_nobody_wants_ends() -> None:
    pool, began = Pool(1, nullcontext), time.monotonic()
    pid = answers(pool, (0, _pid, ()))[0]
    with pytest.raises(progress.Stopped), progress.wanted(lambda: time.monotonic() - began > 1):
        answers(pool, (0, _pause, (600.0,)))
    assert _gone(int(str(pid)))
    assert answers(pool, (0, abs, (-1,))) == [1]
    pool.end()


def test_a_pool_that_nobody_has_any_more_ends() -> None:
    pool = Pool(1, nullcontext)
    pid = answers(pool, (0, _pid, ()))[0]
    del pool
    until = time.monotonic() + ENDS_S
    while not _gone(int(str(pid))) and time.monotonic() < until:
        time.sleep(0.02)
    assert _gone(int(str(pid)))


def test_a_process_that_cannot_be_started_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> AbstractContextManager[None]:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(pools, "_without", full)
    with pytest.raises(BadInput, match=r"no process can be started.*--jobs 1"):
        answers(Pool(1, nullcontext), (0, abs, (-1,)))


def _gone(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


#: The command line, whose workers are at something without an end: they can be told to leave it, or cannot.
_BUSY = """
import os, sys, time
if __name__ == "__mp_main__":
    from stepscope.api import share
    def endless(*given):
        open(os.path.join(sys.argv[-1], str(os.getpid())), "w").close()
        {endless}
    share.describe = endless
    {begins}
elif __name__ == "__main__":
    from stepscope.cli.main import main
    main(sys.argv[1:-1])
"""
_HEARS, _DEAF = "time.sleep(600)", "sum(range(10**13))"
#: They have not begun: whoever started them has handed them a task, and hears nothing.
_BEGINS = "begins"


@pytest.mark.parametrize(
    ("sent", "endless", "group"),
    [
        (signal.SIGTERM, _HEARS, False),
        (signal.SIGTERM, _BEGINS, False),
        pytest.param(signal.SIGINT, _BEGINS, True, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, _BEGINS, True, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, _HEARS, True, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, _HEARS, True, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, _DEAF, False, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, _DEAF, True, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, _HEARS, False, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_a_command_and_its_workers(
    tmp_path: Path, sent: signal.Signals, endless: str, group: bool
) -> None:
    """Whatever they are at; `group`: it comes to all of them, as from a terminal."""
    job, at, temporary = tmp_path / "job", tmp_path / "at", tmp_path / "tmp"
    for folder in (job, at, temporary):
        folder.mkdir()
    simulate_to(Scenario(schedule="fsdp", pp=1, dp=2, ep=1, layers=1, micro_batches=1, steps=2), job, ("kineto",))
    begins = "endless()" if endless is _BEGINS else ""
    (tmp_path / "busy.py").write_text(_BUSY.format(endless=_HEARS if begins else endless, begins=begins))
    words = [sys.executable, str(tmp_path / "busy.py"), "collectives", str(job), "--jobs", "2", "--no-cache", str(at)]
    process = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )  # fmt: skip
    until = time.monotonic() + 120
    while len(list(at.iterdir())) < 2 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    pids = [int(path.name) for path in at.iterdir()]
    assert len(pids) == 2
    (os.killpg if group else os.kill)(process.pid, sent)
    said = process.communicate(timeout=ENDS_S)[1]
    until = time.monotonic() + ENDS_S
    while not all(map(_gone, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    assert all(map(_gone, pids)) and not list(temporary.iterdir())
    assert "Traceback" not in said and process.returncode in (-sent, 128 + sent)
