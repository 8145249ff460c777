"""Many inputs, each by its number, in processes that may hang, die, or eat memory without ending the run.

The parent imports no Polars, whose threads do not survive a fork: each batch is a fork of it that imports afresh.
"""

from __future__ import annotations

import json
import mmap
import os
import pickle
import random
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Of one input, in the processor's time: the machine may be shared. In time that passes, where it waits for ever.
LIMIT_S, WALL_S = 30, 600
_MEMORY = 4 << 30
_BATCH = 1000
_SLOT = struct.Struct("qd")


@dataclass(frozen=True)
class Plan:
    """Which inputs, and where they are made."""

    folder: Path
    seed: int
    kinds: list[str] | None = None


def prepare(plan: Plan) -> None:
    """The good inputs and their answers, made in a process of its own."""
    _forked(lambda: _prepared(plan))


def _prepared(plan: Plan) -> None:
    from good_inputs import make
    from make_mutant import answers_of

    inputs = make(plan.folder / "good")
    (plan.folder / "prepared").write_bytes(pickle.dumps((inputs, answers_of(inputs))))


def _forked(work: Callable[[], None]) -> None:
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("the good inputs could not be made: see above")


def factory(plan: Plan, worker: int) -> Any:
    """What makes the inputs of one worker."""
    from make_mutant import Factory

    inputs, answers = pickle.loads((plan.folder / "prepared").read_bytes())  # written by `prepare`
    os.environ["STEPSCOPE_CACHE_DIR"] = str(plan.folder / f"cache{worker}")
    return Factory(inputs, plan.folder / f"mutant{worker}", answers, plan.kinds)


def number(plan: Plan, index: int) -> random.Random:
    """All that an input depends on."""
    return random.Random(f"{plan.seed}/{index}")


def run(plan: Plan, first: int, count: int, jobs: int) -> Iterator[dict[str, Any]]:
    """One record per input, as they end."""
    todo = [range(at, min(at + _BATCH, first + count)) for at in range(first, first + count, _BATCH)][::-1]
    shared = mmap.mmap(-1, _SLOT.size * jobs)
    workers: dict[int, _Worker] = {}
    try:
        while todo or workers:
            while todo and len(workers) < jobs:
                slot = next(s for s in range(jobs) if s not in {w.slot for w in workers.values()})
                worker = _Worker(plan, slot, todo.pop(), shared)
                workers[worker.pid] = worker
            yield from _collected(workers, todo, shared)
    finally:
        for worker in workers.values():
            os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)


def _collected(workers: dict[int, _Worker], todo: list[range], shared: mmap.mmap) -> Iterator[dict[str, Any]]:
    import select

    ready = select.select([w.pipe for w in workers.values()], [], [], 5)[0]
    for worker in list(workers.values()):
        index, began = _SLOT.unpack_from(shared, worker.slot * _SLOT.size)
        if worker.pipe in ready:
            yield from worker.records()
        if began and time.monotonic() - began > WALL_S:
            os.kill(worker.pid, signal.SIGKILL)
        if not worker.ended:
            continue
        status = os.waitpid(worker.pid, 0)[1]
        os.close(worker.pipe)
        del workers[worker.pid]
        if status:
            ended = os.waitstatus_to_exitcode(status)
            hung = ended == -signal.SIGPROF or (ended == -signal.SIGKILL and time.monotonic() - began > WALL_S)
            text = f"over {LIMIT_S} s" if hung else f"the process ended with {ended}"
            failure = ["hang" if hung else "unexpected", "?", text]
            yield {"index": index, "kind": "?", "said": "", "ended": "failed", "failures": [failure], "s": 0.0}
            if rest := range(index + 1, worker.batch.stop):
                todo.append(rest)


class _Worker:
    """A process with a batch of inputs."""

    def __init__(self, plan: Plan, slot: int, batch: range, shared: mmap.mmap) -> None:
        self.slot, self.batch, self.ended, self._held = slot, batch, False, b""
        _SLOT.pack_into(shared, slot * _SLOT.size, batch.start, 0.0)
        self.pipe, out = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            status = 1
            try:
                os.close(self.pipe)
                _work(plan, slot, batch, shared, out)
                status = 0
            finally:
                os._exit(status)
        os.close(out)

    def records(self) -> Iterator[dict[str, Any]]:
        data = os.read(self.pipe, 1 << 16)
        self.ended = not data
        *lines, self._held = (self._held + data).split(b"\n")
        yield from map(json.loads, lines)


def _work(plan: Plan, slot: int, batch: range, shared: mmap.mmap, out: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for ending in (signal.SIGPROF, signal.SIGTERM):
        signal.signal(ending, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # panics of Polars are printed, too
    made = factory(plan, slot)
    for index in batch:
        _SLOT.pack_into(shared, slot * _SLOT.size, index, time.monotonic())
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
        try:
            record = tried(plan, made, index)
        except Exception as error:  # of the harness: what it was is worth a line
            failure = ["unexpected", "?", f"{type(error).__name__}: {error}"[:300]]
            record = {"index": index, "kind": "?", "said": "", "ended": "failed", "effect": "free"}
            record |= {"asked": [0, 0, 0], "failures": [failure], "s": 0.0}
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(out, json.dumps(record).encode() + b"\n")


def tried(plan: Plan, made: Any, index: int) -> dict[str, Any]:
    """How one input ended."""
    began = time.process_time()
    mutant, outcome = made.run(number(plan, index))
    return {
        "index": index,
        "kind": mutant.kind,
        "said": mutant.said[:300],
        "ended": outcome.kind,
        "effect": mutant.effect,
        "asked": [outcome.answered, outcome.cannot, outcome.refused],
        "failures": [[f.sort, f.question, f.text] for f in outcome.failures],
        "s": time.process_time() - began,
    }
