"""Six reports together, ours beside the real nsys: what `make bench-rows` shows for `stats`.

`rows()` gives rows for a section on an nsys export; `python bench/bench_stats.py TRACE` runs them alone.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import measure
from measure import Sample
from rows import Context, Row, Skipped

SIX = "cuda_gpu_kern_sum,cuda_api_sum,nvtx_sum,nvtx_gpu_proj_sum,nvtx_kern_sum,cuda_kern_exec_sum"


def rows() -> tuple[Row, ...]:
    """The base is the real tool: its ratio to ours is what issue 4 wants above 20."""
    return (
        Row("`nsys stats`, whole process", nsys),
        Row("`stepscope stats`, no cache, whole process", _stepscope("--no-cache"), "≤ 0.05"),
        Row("`stepscope stats`, cold, whole process", _stepscope(fresh=True)),
        Row("`stepscope stats`, warm, whole process", _stepscope(), "≤ 0.05"),
        Row("the same in Python, no cache", _python),
    )


def nsys(context: Context) -> Sample:
    program = shutil.which("nsys")
    if program is None:
        raise Skipped("nsys is not on the PATH (../shared/tools/install-nsys installs one)")
    # nsys writes beside what it reads: it gets a copy.
    with tempfile.TemporaryDirectory(dir=context.cache.parent) as folder:
        copy = Path(folder) / context.path.name
        shutil.copy(context.path, copy)
        argv = [program, "stats", "-q", "--force-export=false", "-r", SIX, "--format", "csv", "-o", "-", str(copy)]
        return measure.command(argv, runs=1)


def _stepscope(*words: str, fresh: bool = False) -> Callable[[Context], Sample]:
    def run(context: Context) -> Sample:
        program = str(Path(sys.executable).with_name("stepscope"))
        argv = [program, "stats", "-q", *words, "-r", SIX, "--format", "csv", str(context.path)]
        if not fresh and not words:
            measure.command(argv, runs=1, env=context.env)  # fill the cache
        return measure.command(argv, runs=context.runs, env=context.env, before=context.forget if fresh else None)

    return run


def _python(context: Context) -> Sample:
    setup = "import stepscope.api, stepscope.nsys.reports as nr\nfrom stepscope.nsys.reports.registry import find"
    body = f"a = nr.Asker(stepscope.open({str(context.path)!r}, cache=False))\n"
    body += f"for name in {SIX.split(',')!r}: a.ask(*find(name, nr.reports()))"
    return measure.python(setup, body, runs=context.runs)


def main() -> None:
    import traces

    path = Path(sys.argv[1]) if len(sys.argv) > 1 else traces.million()
    with tempfile.TemporaryDirectory() as folder:
        context = Context(path, 3, Path(folder) / "cache")
        base: Sample | None = None
        for row in rows():
            try:
                found = row.run(context)
            except Skipped as why:
                print(f"{row.name}: skipped, {why}")
                continue
            base = base or found
            peak = f", {found.peak_mb:.0f} MB" if found.peak_mb else ""
            faster = f"{base.seconds / found.seconds:.1f} x (CPU {base.cpu_seconds / found.cpu_seconds:.1f} x)"
            print(f"{row.name}: {found.seconds:.2f} s, CPU {found.cpu_seconds:.2f} s{peak}, {faster}")


if __name__ == "__main__":
    main()
