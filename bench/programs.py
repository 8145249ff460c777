"""What `make bench` and `make bench-check` time: a few lines of Python each, in a fresh process, process start aside.

Before the clock starts, the process has done the same to a small trace: the interpreter has started, modules are
imported, rules are read. What is timed is the trace.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import measure
import rows
import traces
from measure import Sample

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"

#: The questions about one window.
QUESTIONS = (
    *("window", "breakdown", "overlap", "exposed", "idle", "kernels", "nvtx", "launches", "streams", "critical_path"),
)
SIX = "cuda_gpu_kern_sum,cuda_api_sum,nvtx_sum,nvtx_gpu_proj_sum,nvtx_kern_sum,cuda_kern_exec_sum"
OPENED = "p = stepscope.open(path, cache=False); p.ops; p.calls; p.ranges"
WARM = "p = stepscope.open(path, cache=True); p.ops; p.calls; p.ranges; stepscope.store.flush()"
STATS = (
    "import stepscope.nsys.reports as reports\n"
    "from stepscope.nsys.reports.registry import find\n"
    "from stepscope.nsys.reports.formats import parse_format, render\n"
    "asker = reports.Asker(stepscope.open(path, cache=False))\n"
    f"for name in {SIX.split(',')!r}: render(asker.ask(*find(name, reports.reports())), parse_format('csv'))"
)
#: The same JSON through msgspec, names and times alone: what any reader of it pays.
DECODED = (
    "import msgspec\n"
    "Event = msgspec.defstruct('Event', [('name', str, ''), ('ts', float, 0.0), ('dur', float, 0.0)], gc=False)\n"
    "Trace = msgspec.defstruct('Trace', [('traceEvents', list[Event])])\n"
    "msgspec.json.Decoder(Trace).decode(opened(path).read())"
)


def asked(question: str) -> str:
    return f"stepscope.open(path, cache=False).{question}()"


@dataclass(frozen=True)
class Timing:
    """How to time a program: on which trace, which to take before, whose source, how often."""

    path: Path
    small: Path
    source: Path = SOURCE
    runs: int = 3
    cache: Path | None = None

    def of(self, body: str) -> Sample:
        opened = "import gzip, stepscope\nopened = lambda f: (gzip.open if f.endswith('.gz') else open)(f, 'rb')"
        setup = f"{opened}\n{rows.OPEN}\npath = {str(self.small)!r}\n{body}\npath = {str(self.path)!r}"
        return measure.python(setup, body, runs=self.runs, env=self.env, pick=min)

    @property
    def env(self) -> dict[str, str]:
        cache = {"STEPSCOPE_CACHE_DIR": str(self.cache)} if self.cache else {}
        return {**cache, "PYTHONPATH": str(self.source), "PYTHONDONTWRITEBYTECODE": ""}

    def warm(self) -> Sample:
        """Of a cache that is there: one untimed run fills it."""
        Timing(self.path, self.small, self.source, 1, self.cache).of(WARM)
        return self.of(WARM)

    def scan(self) -> Sample:
        """SQLite's own scan of the same columns."""
        return rows.floor(rows.Context(self.path, self.runs, self.cache or traces.HOME / "cache"), pick=min)


def machine() -> dict[str, str | int]:
    """What a ratio may depend on: cores, their model, Python."""
    import platform

    return {"cores": len(os.sched_getaffinity(0)), "cpu": _model(), "python": platform.python_version()}


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    import platform

    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
