"""Whole commands as `make bench` times them: process start aside, where a goal sets it aside."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import measure
import programs
import traces
from measure import Failed, Sample
from programs import Timing

sys.path.insert(0, str(programs.ROOT / "tests"))

#: Seconds, CPU seconds, peak in MB.
Cost = tuple[float, float, float]


def report(timing: Timing) -> Sample:
    """The report as a page, less what the same command takes for a small trace."""
    return _beyond_start(timing, lambda path: _reported(timing, path))


def first_page(timing: Timing) -> Sample:
    """`serve` until the page and its scene have been answered, less what that takes for a small trace."""
    return _beyond_start(timing, lambda path: _served(timing, path))


def stats(source: Path, runs: int) -> Sample:
    """Six reports as a whole process, its start included."""
    words = ["stats", "-q", "--no-cache", "-r", programs.SIX, "--format", "csv", str(traces.million())]
    argv = [sys.executable, "-m", "stepscope", *words]
    # Compiled modules are kept, as an installed package has them.
    env = {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": ""}
    return measure.command(argv, runs=runs, env=env, pick=min)


def _beyond_start(timing: Timing, cost: Callable[[Path], Cost]) -> Sample:
    runs = [cost(timing.path) for _ in range(timing.runs)]
    starts = [cost(timing.small) for _ in range(timing.runs)]
    seconds, cpu = (min(run[i] for run in runs) - min(start[i] for start in starts) for i in (0, 1))
    return Sample(seconds, cpu, max(peak for *_, peak in runs), timing.runs, 0.0)


def _reported(timing: Timing, path: Path) -> Cost:
    with tempfile.TemporaryDirectory() as folder:
        page = str(Path(folder) / "report.html")
        argv = [sys.executable, "-m", "stepscope", "report", str(path), "--no-cache", "-o", page]
        began, used = time.perf_counter(), _cpu()
        with _started(argv, timing, subprocess.DEVNULL) as process:
            peak = _peak_until_end(process)
        if process.returncode:
            raise Failed(f"report: exit status {process.returncode}")
        return time.perf_counter() - began, _cpu() - used, peak


def _served(timing: Timing, path: Path) -> Cost:
    from serve_load import Clients

    argv = [sys.executable, "-m", "stepscope", "serve", str(path), "--no-cache", "--idle", "5"]
    began, used = time.perf_counter(), _cpu()
    with _started(argv, timing, subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            if not address:
                raise Failed("serve did not start: it needs the extra `web`")
            clients = Clients(address)
            for page in ("/", "/api/scene"):
                status, _ = asyncio.run(clients.get(page))
                if status != 200:
                    raise Failed(f"serve answered {page} with {status}")
            seconds, peak = time.perf_counter() - began, _high_water(process.pid)
        finally:
            process.terminate()
            process.wait()
    return seconds, _cpu() - used, peak


@contextlib.contextmanager
def _started(argv: list[str], timing: Timing, stdout: int) -> Iterator[subprocess.Popen[str]]:
    env = {**os.environ, **timing.env}
    with subprocess.Popen(argv, stdout=stdout, stderr=subprocess.DEVNULL, text=True, env=env) as process:
        yield process


def _peak_until_end(process: subprocess.Popen[str]) -> float:
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, _high_water(process.pid))
        time.sleep(0.02)
    return peak


def _high_water(pid: int) -> float:
    """The highest that the process itself has had, MB."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8")
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:")), 0.0)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
