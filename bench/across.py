"""`make bench-across`: questions across many ranks: time and memory as ranks grow. Nothing here passes or fails.

    make bench-across                        64, 128, 256 and 512 ranks of about 20,000 kernels
    make bench-across ARGS="64 128"          these numbers of ranks instead

Every measurement is a fresh process that reads the files afresh with one worker per core. Memory is what the process
and its workers have together, shared pages counted once.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from stepscope.simulate import assemble, engine, write_nsys
from stepscope.simulate.scenario import Scenario

HOME = Path(__file__).resolve().parents[1] / ".bench"
KERNELS = 20_000
COMMANDS = ("collectives", "stragglers", "critical-path")


def job(world: int) -> Path:
    """Traces of a job of `world` ranks on nodes of eight, one file per node."""
    folder = HOME / f"ranks-{world}"
    if folder.exists():
        return folder
    scenario = Scenario(
        schedule="1f1b",
        pp=4,
        ep=1,
        dp=world // 32,
        tp=8,
        nodes=world // 8,
        layers=4,
        micro_batches=8,
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


def measured(command: list[str]) -> tuple[float, float]:
    """Seconds, and the most memory (GB) that the process and its children had together."""
    began, peak = time.time(), 0.0
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
    return time.time() - began, peak / 1e6


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


def main(worlds: list[int]) -> None:
    stepscope = str(Path(sys.executable).parent / "stepscope")
    print(f"{'command':<14} {'ranks':>5} {'seconds':>8} {'ms/rank':>8} {'memory':>8}")
    for world in worlds:
        folder = job(world)
        for command in COMMANDS:
            seconds, memory = measured([stepscope, command, str(folder), "--no-cache", "--format", "json"])
            print(
                f"{command:<14} {world:>5} {seconds:>8.1f} {1000 * seconds / world:>8.0f} {memory:>6.2f} GB", flush=True
            )


if __name__ == "__main__":
    main([int(a) for a in sys.argv[1:]] or [64, 128, 256, 512])
