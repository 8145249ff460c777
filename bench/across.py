"""Questions across many ranks: time and memory as ranks grow. Nothing here passes or fails.

    make bench-rows                          64 and 512 ranks of about 20,000 kernels, after everything else
    make bench-across                        64, 128, 256 and 512 ranks
    make bench-across ARGS="64 128"          these numbers of ranks instead

Every rank is simulated, none is a copy of another. Every measurement is a fresh process that reads the files afresh,
without cache, with one worker per core. CPU seconds are those of the process and its workers together, which a busy
machine does not distort; memory is what they have together at the same time, shared pages counted once.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.nsys import write as write_nsys
from stepscope.simulate.programs import assemble
from stepscope.simulate.programs import execute as engine

HOME = Path(__file__).resolve().parents[1] / ".bench"
KERNELS = 20_000
QUESTIONS = (
    ("collectives",),
    ("stragglers",),
    ("critical-path",),
    ("critical-path", "--what-if", "even-rank"),
)
#: What `make bench-rows` measures; the growth between the two shows whether time is linear in ranks.
FEW, MANY = 64, 512


@dataclass(frozen=True)
class Cost:
    """What one question took."""

    question: str
    ranks: int
    seconds: float
    cpu_seconds: float
    peak_gb: float


def job(world: int) -> Path:
    """Traces of a job of `world` ranks on nodes of eight, one file per node: a pipeline of four stages with experts.

    Of the 20,000 ops of a rank about 1,600 communicate.
    """
    folder = HOME / f"across-{world}"
    if folder.exists():
        return folder
    scenario = Scenario(
        schedule="1f1b",
        pp=4,
        ep=8,
        dp=world // 32,
        nodes=world // 8,
        layers=32,
        micro_batches=16,
        steps=2,
        kernels=world * KERNELS,
        faults=("straggler:rank=5", "clock:node=1,offset_us=700,drift_ppm=10"),
    )
    made = engine.run(scenario)
    part = folder.with_suffix(".part")
    part.mkdir(parents=True, exist_ok=True)
    for node in range(scenario.nodes):
        write_nsys.write(assemble.trace(made, [node]), node, part / f"node{node}.sqlite")
    part.rename(folder)
    return folder


def measured(question: tuple[str, ...], world: int) -> Cost:
    """Ask in a fresh process."""
    stepscope = str(Path(sys.executable).parent / "stepscope")
    command = [stepscope, question[0], str(job(world)), *question[1:], "--no-cache", "--format", "json"]
    began, used, peak = time.perf_counter(), _cpu(), 0.0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.3):
            peak = max(peak, sum(map(_memory, _tree(process.pid))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    status = process.wait()
    done.set()
    watcher.join()
    if status:
        raise SystemExit(f"{' '.join(command)}: exit status {status}")
    return Cost(" ".join(question), world, time.perf_counter() - began, _cpu() - used, peak / 1e6)


def _cpu() -> float:
    """CPU seconds of all processes that were waited for, and of those that they waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _tree(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(p for c in children for p in _tree(int(c)))]


def _memory(pid: int) -> int:
    """Proportional set size, kB."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def report(worlds: list[int]) -> list[dict[str, Any]]:
    """Measure and print a table; the same figures as rows."""
    print(f"\nacross ranks, {KERNELS:,} kernels each")
    print(f"  {'':32} {'ranks':>5} {'seconds':>8} {'CPU s':>7} {'CPU ms/rank':>12} {'peak GB':>8}")
    found = []
    for world in worlds:
        for question in QUESTIONS:
            c = measured(question, world)
            each = 1000 * c.cpu_seconds / world
            print(
                f"  {c.question:32} {world:>5} {c.seconds:>8.1f} {c.cpu_seconds:>7.1f} {each:>12.0f} {c.peak_gb:>8.2f}",
                flush=True,
            )
            found.append(c)
    _print_growth(found)
    return [{"section": "across ranks", "row": c.question, **vars(c)} for c in found]


def _print_growth(found: list[Cost]) -> None:
    few, many = min(c.ranks for c in found), max(c.ranks for c in found)
    if few == many:
        return
    print(f"\n{many / few:g} times the ranks cost, in CPU time (linear: {many / few:g}x)")
    cost = {(c.question, c.ranks): c.cpu_seconds for c in found}
    for question in dict.fromkeys(c.question for c in found):
        print(f"  {question:32} {cost[question, many] / cost[question, few]:6.2f}x")


if __name__ == "__main__":
    report([int(a) for a in sys.argv[1:]] or [FEW, 128, 256, MANY])
