"""What is measured, as data: a new row is one entry here.

A row compares to the first row of its section, the base; sections are printed in order.
"""

from __future__ import annotations

import shutil
import sqlite3
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import measure
from measure import Sample

VENVS = Path(__file__).resolve().parents[1] / ".bench" / "venvs"

#: What an open reads (ops, calls and ranges): the floor scans the same columns, each as far as the export has it.
SCANNED = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId streamId correlationId globalPid demangledName",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start end deviceId streamId correlationId globalPid bytes copyKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start end deviceId streamId correlationId globalPid bytes",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start end deviceId streamId correlationId globalPid graphId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end globalTid correlationId nameId",
    "NVTX_EVENTS": "start end eventType globalTid text textId domainId",
}

#: Imports are not part of an open; Polars imports numpy.ma when it first meets an array.
OPEN = "import numpy.ma, stepscope.api, stepscope.store, stepscope.sources.nsys, stepscope.sources.kineto.source"
#: The tables that nearly every question needs, with the cache written: what the first command on a trace pays.
TABLES = "p = stepscope.open({path!r}, cache={cache}); p.ops; p.calls; p.ranges; stepscope.store.flush()"


class Skipped(Exception):
    """The row cannot be measured here; the text says why and what would help."""


@dataclass(frozen=True)
class Context:
    """What every row gets: the trace, how often to run, and a cache of its own."""

    path: Path
    runs: int
    cache: Path

    @property
    def env(self) -> dict[str, str]:
        return {"STEPSCOPE_CACHE_DIR": str(self.cache)}

    def forget(self) -> None:
        shutil.rmtree(self.cache, ignore_errors=True)


@dataclass(frozen=True)
class Row:
    """One measurement. `wanted` is the ratio to the base that the project promises, where it promises one."""

    name: str
    run: Callable[[Context], Sample]
    wanted: str = ""


@dataclass(frozen=True)
class Section:
    """Rows on one trace; the first is the base."""

    title: str
    trace: Callable[[], Path]
    rows: tuple[Row, ...]
    runs: int = 3
    about: str = field(default="")


def floor(context: Context, pick: measure.Pick = statistics.median) -> Sample:
    """SQLite's own scan, one thread, nothing kept."""
    queries = []
    with closing(sqlite3.connect(f"file:{context.path}?mode=ro", uri=True)) as db:
        for table, columns in SCANNED.items():
            have = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
            wanted = ", ".join(f'max("{c}")' for c in columns.split() if c in have)
            if wanted:
                queries.append(f"SELECT {wanted} FROM {table}")
    setup = f"import sqlite3\ndb = sqlite3.connect('file:' + {str(context.path)!r} + '?mode=ro', uri=True)"
    body = f"for query in {queries!r}:\n    db.execute(query).fetchall()"
    return measure.python(setup, body, runs=context.runs, pick=pick)


def cold(context: Context) -> Sample:
    body = TABLES.format(path=str(context.path), cache=True)
    return measure.python(OPEN, body, runs=context.runs, env=context.env, before=context.forget)


def warm(context: Context) -> Sample:
    body = TABLES.format(path=str(context.path), cache=True)
    measure.python(OPEN, body, runs=1, env=context.env)
    return measure.python(OPEN, body, runs=max(context.runs, 5), env=context.env)


def uncached(context: Context) -> Sample:
    return measure.python(OPEN, TABLES.format(path=str(context.path), cache=False), runs=context.runs)


def answer(question: str) -> Callable[[Context], Sample]:
    """A question from a cold file to its rows, with the cache written as every first command does."""

    def run(context: Context) -> Sample:
        body = f"stepscope.open({str(context.path)!r}).{question}; stepscope.store.flush()"
        return measure.python(OPEN, body, runs=context.runs, env=context.env, before=context.forget)

    return run


def queried(context: Context) -> Sample:
    """The first query of a profile whose tables are read: what is measured is DuckDB with what it is handed."""
    setup = f"{OPEN}, duckdb\n{TABLES.format(path=str(context.path), cache=False)}"
    query = "SELECT name, count(*) AS n, sum(dur_ns) AS ns FROM ops GROUP BY name ORDER BY ns DESC"
    return measure.python(setup, f"p.sql({query!r})", runs=context.runs)


def exported(context: Context) -> Sample:
    """A warm profile as a Perfetto trace, without findings."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "job.pftrace")
        body = f"stepscope.open({str(context.path)!r}).export({file!r}, findings=False)"
        return measure.python(OPEN, body, runs=context.runs, env=context.env)


def stepscope_command(*words: str, fresh: bool = False) -> Callable[[Context], Sample]:
    """A whole command, from the shell's point of view."""

    def run(context: Context) -> Sample:
        argv = [str(Path(sys.executable).with_name("stepscope")), *words, str(context.path)]
        before = context.forget if fresh else None
        return measure.command(argv, runs=context.runs, env=context.env, before=before)

    return run


def nsys_stats(context: Context) -> Sample:
    program = shutil.which("nsys")
    if program is None:
        raise Skipped("nsys is not on the PATH (../shared/tools/install-nsys installs one)")
    argv = [
        program,
        "stats",
        "--force-export=false",
        "--report",
        "cuda_gpu_kern_sum",
        "--format",
        "csv",
        "--output",
        "-",
    ]
    # nsys writes a lock or a timestamp beside what it reads: it gets a copy.
    with tempfile.TemporaryDirectory(dir=context.cache.parent) as folder:
        copy = Path(folder) / context.path.name
        shutil.copy(context.path, copy)
        return measure.command([*argv, str(copy)], runs=min(context.runs, 2))


def nsys_ai(context: Context) -> Sample:
    program = _tool("nsys-ai", "nsys-ai")
    # It adds indices to the trace itself, and files beside it: on a copy, anew each time.
    with tempfile.TemporaryDirectory(dir=context.cache.parent) as folder:
        copy = Path(folder) / context.path.name

        def fresh() -> None:
            for old in Path(folder).iterdir():
                shutil.rmtree(old) if old.is_dir() else old.unlink()
            shutil.copy(context.path, copy)

        return measure.command([str(program), "info", str(copy)], runs=1, before=fresh)


def traceinsight(context: Context) -> Sample:
    interpreter = _tool("traceinsight", "python")
    setup = "import logging; logging.disable(logging.CRITICAL)\nfrom hta.trace_analysis import TraceAnalysis"
    body = f"TraceAnalysis(trace_files={{0: {str(context.path)!r}}}, trace_dir={str(context.path.parent)!r})"
    return measure.python(setup, body, runs=1, interpreter=str(interpreter))


def _tool(name: str, program: str) -> Path:
    path = VENVS / name / "bin" / program
    if not path.exists():
        raise Skipped(f"{name} is not installed (`make bench-tools` installs it)")
    return path


#: A question may cost 1.6 times the cold open, which may cost 2.5 scans: 4.0 scans together. A query of one's own, once
#: the profile is open, may cost half of the cold open.
NSYS_ROWS = (
    Row("SQLite's own scan of the same columns", floor),
    Row("open, cold (read, and cache written)", cold, "≤ 2.5"),
    Row("open, warm", warm, "≤ 0.25"),
    Row("open, no cache", uncached),
    Row("overlap, from a cold file", answer("overlap()"), "≤ 4.0"),
    Row("breakdown, from a cold file", answer("breakdown()"), "≤ 4.0"),
    Row("idle, from a cold file", answer("idle()"), "≤ 4.0"),
    Row("sql, kernels by name, once open", queried, "≤ 1.25"),
    Row("export to Perfetto, from a warm file", exported),
    Row("`stepscope info`, cold, whole process", stepscope_command("info", fresh=True)),
    Row("`stepscope info`, warm, whole process", stepscope_command("info")),
    Row("`nsys stats` (kernel summary), whole process", nsys_stats),
    Row("`nsys-ai info`, first time, whole process", nsys_ai),
)

KINETO_ROWS = (
    Row("open, no cache", uncached),
    Row("open, cold (read, and cache written)", cold),
    Row("open, warm", warm),
    Row("traceinsight 0.6.1, load", traceinsight, "≥ 8"),
)
