"""What the programs share: the command line, the turn on the GPU, and the times of their own steps.

A program has `FAULTS` (name -> the row of the catalogue) and `run(fault, steps)`, which trains and calls
`steps.ended()` after every step. Nothing of stepscope is used. PAIRS_CPU=1 shrinks everything, to see that a program
runs at all; PAIRS_TURN names a file that is locked as long as a program trains, so that several can start side by side.
"""

from __future__ import annotations

import argparse
import fcntl
import itertools
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

import torch

#: Steps before the timed stretch; `capture run` records after as many.
WARM_UP = 5
ON_CPU = bool(os.environ.get("PAIRS_CPU"))
DEVICE = torch.device("cpu" if ON_CPU else "cuda")
#: Checkpoints go here.
SCRATCH = Path(os.environ.get("PAIRS_SCRATCH", "/tmp/pairs"))
_held: list[IO[str]] = []


def sized(on_gpu: int, on_cpu: int) -> int:
    return on_cpu if ON_CPU else on_gpu


def turn() -> None:
    """Wait until no other program uses the GPU; held to the end of the process.

    CUDA takes seconds to start: several may do that at once, but not while one trains.
    """
    if name := os.environ.get("PAIRS_TURN"):
        _held.append(Path(name).open("a"))  # noqa: SIM115
        fcntl.flock(_held[-1], fcntl.LOCK_SH)
        some = torch.ones(64, 64, device=DEVICE)
        (some @ some).sum().item()
        fcntl.flock(_held[-1], fcntl.LOCK_EX)


def synchronize() -> None:
    if not ON_CPU:
        torch.cuda.synchronize()


def settings(*, tf32: bool = True, benchmark: bool = False, deterministic: bool = False) -> None:
    """What is set for the whole process: every run sets all of it."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = benchmark
    torch.backends.cudnn.deterministic = deterministic
    torch.use_deterministic_algorithms(deterministic, warn_only=True)


def autocast(enabled: bool = True) -> torch.autocast:
    return torch.autocast(DEVICE.type, torch.bfloat16, enabled=enabled)


class Steps:
    """The steps of a run. Where they are timed, the GPU is waited for at both ends of the stretch, and of blocks of it
    where so many steps make a block; nowhere else. `after`: so many steps that are recorded come after them."""

    def __init__(self, steps: int, timed: bool = False, block: int = 0, after: int = 0) -> None:
        self.steps, self.timed, self.block = steps, timed, block
        #: so many steps the program makes: some more than are recorded, for ranks to agree and the profiler to stop
        self.total = WARM_UP + steps + (after + 4 if after else 0 if timed else 2)
        self.began = time.perf_counter()
        self._ends: list[float] = []
        self._first: float | None = None
        #: called when the last of the timed steps is over
        self.told: Callable[[], None] | None = None

    def begins(self) -> None:
        """The first step begins: what came before was the start."""
        if self._first is None:
            if self.timed:
                synchronize()
            self._first = time.perf_counter()

    def ended(self) -> None:
        self.begins()
        done = len(self._ends) + 1 - WARM_UP
        if self.timed and (done in (0, self.steps) or (done > 0 and self.block and done % self.block == 0)):
            synchronize()
        self._ends.append(time.perf_counter())
        if self.told is not None and done == self.steps:
            self.told()

    def times(self) -> dict[str, object]:
        """Milliseconds: the mean of the stretch, each step as the host saw it, and the start."""
        ends = self._ends[WARM_UP - 1 : WARM_UP + self.steps]
        each = [1e3 * (b - a) for a, b in itertools.pairwise(ends)]
        size = self.block or len(each)
        return {
            "mean_ms": round(sum(each) / len(each), 3),
            "blocks_ms": [round(sum(b) / len(b), 3) for i in range(0, len(each), size) if (b := each[i : i + size])],
            "host_ms": [round(ms, 3) for ms in each],
            "start_ms": round(1e3 * ((self._first or self.began) - self.began), 1),
        }


Run = Callable[[str, Steps], None]


def main(run: Run, faults: Mapping[str, str], *, turn: Callable[[], None] = turn, writes: bool = True) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=["none", *faults], default="none")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--after", type=int, default=0, help="steps to be recorded, after those that are timed")
    given = parser.parse_args()
    turn()
    timed = given.json is not None and writes
    steps = Steps(given.steps, timed=given.json is not None, after=given.after)
    steps.told = (lambda: _write(given, steps)) if timed else None
    run(given.fault, steps)
    if timed:
        _write(given, steps)


def _write(given: argparse.Namespace, steps: Steps) -> None:
    given.json.write_text(json.dumps({"fault": given.fault, **steps.times()}) + "\n")
