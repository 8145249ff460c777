"""Programs that no detector of the run was made with: is the cause named first, and the promise within 25 %?

python tests/reliability/new_programs.py [quick|full|FIRST SEED]

Two programs for each row of C1 to C8 in the catalogue: a plain loop in which only the steps are marked, so that the
cause has to be told by what the GPU and CUDA calls do, and one that marks what it does as Lightning's and transformers'
profilers do. The simulator runs each with what is planted and without; the truth is the difference of the mean steps.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from pairs import scenario
from stepscope import api
from stepscope.simulate.engine.rank import Wait
from stepscope.simulate.engine.record import AUTOGRAD, MAIN, Record
from stepscope.simulate.job.kernels import COMPUTE, COPIES
from stepscope.simulate.nsys import write as write_nsys
from stepscope.simulate.programs import assemble
from stepscope.simulate.programs import execute as engine
from stepscope.simulate.programs.layers import Worker
from stepscope.simulate.programs.schedules import data_parallel
from stepscope.simulate.truth import step_times

STEPS = 37
CLOSE = 0.25
MS = 1_000_000
Plant = Callable[[Worker, int], Wait]


@dataclass(frozen=True)
class Program:
    """What is done beside the usual step: within it (`inside`, at its begin) or between two (`after` it)."""

    row: str
    name: str
    #: ids of findings that name the cause, the first of which must come first; empty: nothing, since it comes once
    found: tuple[str, ...]
    inside: Plant | None = None
    after: Plant | None = None
    #: a word that the title or evidence has
    says: str = ""
    dp: int = 1


def every(n: int, do: Plant, phase: int = -1) -> Plant:
    def plant(w: Worker, number: int) -> Wait:
        if number % n == phase % n:
            yield from do(w, number)

    return plant


def within(text: str, do: Plant) -> Plant:
    def plant(w: Worker, number: int) -> Wait:
        w.sim.push(text)
        yield from do(w, number)
        w.sim.pop()

    return plant


def away(ms: float) -> Plant:
    """The host does something of which nothing is recorded."""

    def plant(w: Worker, number: int) -> Wait:
        w.sim.sleep(round(ms * MS))
        yield from ()

    return plant


def save(tensors: int, ms: float) -> Plant:
    """state_dict to the host tensor by tensor, each waited for, then pickled."""

    def plant(w: Worker, number: int) -> Wait:
        for _ in range(tensors):
            yield from w.sim.copy(COMPUTE, 3 << 20, to_host=True)
            yield from w.sim.sync_stream(COMPUTE)
        w.sim.sleep(round(ms * MS))

    return plant


def forward(passes: int, *, items: bool = False) -> Plant:
    def plant(w: Worker, number: int) -> Wait:
        for _ in range(passes):
            w.compute("embedding_f")
            for layer in range(w.scenario.layers):
                yield from w.forward(layer)
            w.compute("head_f")
            w.compute("loss_f")
            if items:
                yield from w.sim.item()

    return plant


def both(passes: int) -> Plant:
    """Forward and backward passes once more, without an optimizer: another loss, a penalty."""

    def plant(w: Worker, number: int) -> Wait:
        for _ in range(passes):
            w.compute("embedding_f")
            for layer in range(w.scenario.layers):
                yield from w.forward(layer)
            w.sim.switch(AUTOGRAD)
            for layer in reversed(range(w.scenario.layers)):
                yield from w.backward(layer)
            w.compute("embedding_b")
            w.sim.switch(MAIN)

    return plant


def retry(pairs: int) -> Plant:
    """The allocator gives all back and asks again."""

    def plant(w: Worker, number: int) -> Wait:
        for _ in range(pairs):
            yield from w.sim.free()
        for _ in range(pairs):
            w.sim.malloc()

    return plant


def late_batch(ms: float) -> Plant:
    """The host waits for its loader, then copies what it got."""

    def plant(w: Worker, number: int) -> Wait:
        w.sim.sleep(round(ms * MS))
        yield from w.sim.copy(COPIES, 1 << 20, to_host=False)

    return plant


def growing(us: float) -> Plant:
    def plant(w: Worker, number: int) -> Wait:
        w.sim.sleep(round(us * 1000 * number))
        yield from ()

    return plant


def more_and_more(w: Worker, number: int) -> Wait:
    """A graph that is kept: every step runs a few more layers backward than the one before."""
    w.sim.switch(AUTOGRAD)
    for _ in range(number // 2):
        yield from w.backward(0)
    w.sim.switch(MAIN)


def at(steps: tuple[int, ...], do: Plant) -> Plant:
    def plant(w: Worker, number: int) -> Wait:
        if number in steps:
            yield from do(w, number)

    return plant


def on_rank(rank: int, do: Plant) -> Plant:
    def plant(w: Worker, number: int) -> Wait:
        if w.sim.rank == rank:
            yield from do(w, number)

    return plant


def programs(random: Random) -> list[Program]:
    n, ms = random.randint(4, 9), random.uniform(20, 120)
    some = tuple(sorted(random.sample(range(2, STEPS), random.randint(2, 3))))
    pl = "[pl][profile]"
    saving = f"{pl}[Callback]ModelCheckpoint{{'monitor': None}}.on_train_batch_end"
    fetching = f"{pl}[_TrainingEpochLoop].train_dataloader_next"
    return [
        Program("C1", "plain loop, torch.save between steps", ("checkpoint",), after=every(n, save(24, ms))),
        Program("C1", "Lightning, ModelCheckpoint", ("checkpoint",), inside=every(n, within(saving, save(12, ms)))),
        Program("C2", "plain loop, validates between steps", ("evaluation",), after=every(n, forward(6, items=True))),
        Program(
            "C2",
            "Lightning, validation_step",
            ("evaluation",),
            inside=every(n, within(f"{pl}[Strategy]SingleDeviceStrategy.validation_step", forward(4))),
        ),
        Program(
            "C2",
            "Lightning, logs every N steps",
            ("evaluation",),
            after=every(n, within(f"{pl}[Logger]TensorBoardLogger.log_metrics", away(ms / 3))),
            says="log",
        ),
        Program(
            "C3",
            "plain loop, workers start anew",
            ("epoch-end", "spikes"),
            inside=every(12, late_batch(ms), 0),
            says="input|batch",
        ),
        Program("C3", "Lightning, loader is reset", ("epoch-end",), after=every(12, within(fetching, away(ms)))),
        Program("C4", "plain loop, allocator retry", ("spikes",), inside=at(some, retry(30)), says="alloc"),
        Program(
            "C4",
            "Trainer, gc.collect()",
            ("spikes",),
            inside=at(some, within("gc.collect", away(ms))),
            says="gc|garbage",
        ),
        Program(
            "C4",
            "plain loop, one rank late",
            ("spikes", "late-node"),
            inside=at(some, on_rank(1, away(ms))),
            dp=2,
            says="rank 1",
        ),
        Program(
            "C4",
            "Trainer, recompiles",
            ("warm-up", "spikes"),
            inside=at(some, within("compile_inner (dynamo_timed)", away(ms))),
        ),
        Program("C5", "plain loop, the first steps are slow", ("warm-up",), inside=at((1, 2), away(ms))),
        Program(
            "C5",
            "Trainer, torch.compile in the first step",
            ("warm-up",),
            inside=at((1,), within("inductor_codegen", away(6 * ms))),
        ),
        Program("C6", "plain loop, builds its model", (), inside=at((0,), late_batch(20 * ms))),
        Program(
            "C6", "Trainer, loads its weights", (), inside=at((0,), within("Trainer.load_checkpoint", away(30 * ms)))
        ),
        Program("C7", "plain loop, a list that keeps graphs", ("drift",), inside=more_and_more),
        Program("C7", "Trainer, metrics over all seen", ("drift",), after=within("compute_metrics", growing(60))),
        Program("C8", "plain loop, two losses in turns", ("step-kinds",), inside=every(2, both(2))),
        Program(
            "C8",
            "Trainer, regularizes every fourth step",
            ("step-kinds",),
            inside=every(4, within("R1Regularizer.step", both(3))),
        ),
    ]


@contextmanager
def played(program: Program | None, plain: bool) -> Iterator[None]:
    """The simulator's steps, with what the program does beside them."""
    begin, end = data_parallel.at_begin, data_parallel.at_end
    push, pop = Record.push, Record.pop

    def push_steps(self: Record, text: str) -> int:
        if text.startswith("step "):
            return push(self, text)
        self._stack[self.thread].append(-1)
        return -1

    def pop_steps(self: Record) -> None:
        if self._stack[self.thread][-1] >= 0:
            pop(self)
        else:
            self._stack[self.thread].pop()

    def at_begin(w: Worker, number: int) -> Wait:
        yield from begin(w, number)
        if program is not None and program.inside is not None:
            yield from program.inside(w, number)

    def at_end(w: Worker, number: int) -> Wait:
        if program is not None and program.after is not None:
            yield from program.after(w, number)
        yield from end(w, number)

    data_parallel.at_begin, data_parallel.at_end = at_begin, at_end
    if plain:  # nobody marks anything but the steps
        Record.push, Record.pop = push_steps, pop_steps  # type: ignore[method-assign]
    try:
        yield
    finally:
        Record.push, Record.pop = push, pop  # type: ignore[method-assign]
        data_parallel.at_begin, data_parallel.at_end = begin, end


def job(seed: int, program: Program | None, dp: int, plain: bool) -> engine.Job:
    with played(program, plain):
        return engine.run(scenario(seed, steps=STEPS, faults=("noise:us=20",), jitter=0.02, dp=dp))


def tried(seed: int, program: Program) -> tuple[str, str | None]:
    """What was said, and what is wrong with it; None where nothing is."""
    with_it, without = (job(seed, p, program.dp, program.name.startswith("plain")) for p in (program, None))
    costs = (np.mean(step_times(with_it)[1:]) - np.mean(step_times(without)[1:])) / MS
    with tempfile.TemporaryDirectory() as folder:
        write_nsys.write(assemble.trace(with_it), 0, Path(folder) / "run.sqlite")
        result = api.open(folder, cache=False).diagnose()
    rows = result.rows.to_dicts()
    told = "; ".join(f"{r['id']} {r['recoverable_ns'] / MS:.2f} ms" for r in rows[:3]) or "nothing"
    said = f"costs {costs:.2f} ms: {told}"
    if not program.found:
        once = [r["id"] for r in rows if r["recoverable_ns"] > MS]
        return said, f"{once} of what comes once" if once else None
    first = rows[0] if rows else {"id": "none", "recoverable_ns": 0, "title": "", "evidence": ""}
    if first["id"] not in program.found:
        return said, "not named first"
    words = program.says.split("|")
    if not any(word in f"{first['title']} {first['evidence']} {first['try_next']}" for word in words):
        return said, f"does not say {program.says}: {first['title']}"
    off = first["recoverable_ns"] / MS / costs - 1
    return f"{said} ({off:+.0%})", "promise is off" if abs(off) > CLOSE else None


def main(first: str = "full") -> int:
    wrong, seed = 0, int(first) if first.isdecimal() else 0
    for k, program in enumerate(programs(Random(seed))):
        if first == "quick" and k % 4:
            continue
        said, why = tried(seed + k, program)
        wrong += why is not None
        print(f"{program.row} {program.name}: {said}{f'  <- {why}' if why else ''}", flush=True)
    print(f"{wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
