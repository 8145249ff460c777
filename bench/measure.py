"""One measurement: a small program in a fresh process, several times; their median or best time, the highest peak."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Runs after the measured body, in the same process. VmHWM, not ru_maxrss: the latter remembers the parent.
_REPORT = """
import json as _json, resource as _resource
def _peak():
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) / 1024
    except (OSError, StopIteration):
        return _resource.getrusage(_resource.RUSAGE_SELF).ru_maxrss / 1024
print("\\n@" + _json.dumps([_seconds, _cpu, _peak()]))
"""


@dataclass(frozen=True)
class Sample:
    """What several runs took."""

    seconds: float
    cpu_seconds: float  # of all its threads: what a busy machine does not distort
    peak_mb: float | None
    runs: int
    spread: float  # (slowest - fastest) / median


#: Seconds, CPU seconds, and the peak of memory where it is known.
Once = tuple[float, float, float | None]


#: Which of several runs counts: their median, or (`min`) the best, which a busy machine distorts least.
Pick = Callable[[Sequence[float]], float]


class Failed(Exception):
    """The program did not run to its end; the text is the last line it said."""


def python(
    setup: str,
    body: str,
    *,
    runs: int = 3,
    interpreter: str = sys.executable,
    env: dict[str, str] | None = None,
    before: Callable[[], None] | None = None,
    pick: Pick = statistics.median,
) -> Sample:
    """Time `body` after `setup` (imports) in a fresh interpreter; `before` prepares each run, untimed."""
    program = f"{setup}\nimport time as _time\n_start, _used = _time.perf_counter(), _time.process_time()\n{body}\n"
    program += f"_seconds, _cpu = _time.perf_counter() - _start, _time.process_time() - _used\n{_REPORT}"

    def once() -> Once:
        seconds, cpu, peak = json.loads(_run([interpreter, "-c", program], env).rpartition("\n@")[2])
        return seconds, cpu, peak

    return _several(once, runs, before, pick)


def command(
    argv: Sequence[str],
    *,
    runs: int = 3,
    env: dict[str, str] | None = None,
    before: Callable[[], None] | None = None,
    pick: Pick = statistics.median,
) -> Sample:
    """Time a whole process, start and imports included."""

    def once() -> Once:
        start, used = time.perf_counter(), _children()
        _run(argv, env)
        return time.perf_counter() - start, _children() - used, None

    return _several(once, runs, before, pick)


def warm_page_cache(path: Path) -> None:
    """Read a file (or a directory's files) once, so that no measurement pays for the disk."""
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            with file.open("rb", buffering=0) as stream:
                while stream.read(1 << 22):
                    pass


def _several(once: Callable[[], Once], runs: int, before: Callable[[], None] | None, pick: Pick) -> Sample:
    found = []
    for _ in range(runs):
        if before:
            before()
        found.append(once())
    seconds = [s for s, _, _ in found]
    peaks = [p for _, _, p in found if p is not None]
    spread = (max(seconds) - min(seconds)) / statistics.median(seconds)
    return Sample(pick(seconds), pick([c for _, c, _ in found]), max(peaks, default=None), runs, spread)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(argv: Sequence[str], env: dict[str, str] | None) -> str:
    done = subprocess.run(argv, env={**os.environ, **(env or {})}, capture_output=True, text=True, errors="replace")
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Failed(said[-1] if said else f"exit status {done.returncode}")
    return done.stdout
