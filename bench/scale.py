"""`make bench-scale`: does anything take longer than in proportion to what there is? Nothing here passes or fails.

    make bench-scale                         up to ten thousand rank files; hard shapes, small and large
    make bench-scale ARGS=quick              up to a thousand rank files, hard shapes of a tenth
    make bench-scale ARGS="full ranks info"  only of ranks (or a shape), only these questions

Every measurement is a fresh process, without cache; CPU seconds are those of the process and its workers, which a busy
machine hardly distorts. `ratio` is the cost beside that of the size before it: as many times the input should cost as
many times the time. The figures go to tests/reliability/results/scale.json, for docs/reliability.md.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hard_traces
import many_ranks

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".bench"
RESULTS = ROOT / "tests" / "reliability" / "results" / "scale.json"

#: What is asked of many ranks, with more words of the command line.
OF_RANKS = (
    ("info",),
    ("setup",),
    ("window",),
    ("breakdown",),
    ("overlap",),
    ("collectives",),
    ("stragglers",),
    ("critical-path",),
    ("diagnose",),
    ("report", "-o", "{out}.html"),
    ("export", "-o", "{out}.pftrace"),
    ("compare", "--to", "{path}"),
)
#: Of a hard shape: everything at once, by a page, an export, and the questions that walk ranges.
OF_SHAPES = (
    ("breakdown",),
    ("breakdown", "--tree"),
    ("nvtx",),
    ("timeline",),
    ("kernels",),
    ("mesh",),
    ("diagnose",),
    ("stats",),
    ("report", "-o", "{out}.html"),
    ("export", "-o", "{out}.pftrace"),
)
RANKS = {"quick": (100, 1000), "full": (100, 1000, 10_000)}
SHAPES = {"quick": (2_000, 20_000), "full": (20_000, 200_000)}
#: A process costs as much as a rank of its own.
_FEWER = {"processes": 20}
#: More than this is a hang.
_LIMIT_S = {"quick": 600, "full": 3600}


@dataclass(frozen=True)
class Cost:
    """What one command took: None where it did not come to its end."""

    cpu_s: float | None
    peak_mb: float
    status: int | None


def main(arguments: list[str]) -> int:
    scale = arguments.pop(0) if arguments and arguments[0] in RANKS else "full"
    known = {"ranks": many_ranks, **hard_traces.CASES}
    inputs, questions = [a for a in arguments if a in known] or list(known), [a for a in arguments if a not in known]
    cases: list[dict[str, Any]] = []
    for (of, question), sizes in (case for name in inputs for case in _cases(name, scale)):
        if not questions or question[0] in questions:
            cases += _measured(of, question, sizes, _LIMIT_S[scale])
    cases = _beside_those_before(cases)
    hangs = sum(case["cpu_s"] is None for case in cases)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    found = {"suite": "scale", "cases": cases, "hangs": hangs, "commit": commit.strip()}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"{len(cases)} measurements, {hangs} hangs: {RESULTS.relative_to(ROOT)}")
    return 0


def _beside_those_before(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With what was measured before and is not measured now."""
    try:
        before = json.loads(RESULTS.read_text("utf-8"))["cases"]
    except OSError:
        before = []
    now = {(case["what"], case["size"]) for case in cases}
    return [case for case in before if (case["what"], case["size"]) not in now] + cases


def _cases(of: str, scale: str) -> Iterator[tuple[tuple[str, tuple[str, ...]], list[tuple[int, Path]]]]:
    """What is asked of what: (its name, the command), and the inputs by size."""
    HOME.mkdir(exist_ok=True)
    if of == "ranks":
        jobs = [(n, many_ranks.job(HOME / f"ranks-{n}", n)) for n in RANKS[scale]]
        yield from (((of, question), jobs) for question in OF_RANKS)
        return
    traces = []
    for size in SHAPES[scale]:
        n = size // _FEWER.get(of, 1)
        path = HOME / f"{of}-{n}.json"
        traces.append((n, path if path.exists() else hard_traces.write(path, hard_traces.CASES[of](n))))
    yield from (((of, question), traces) for question in OF_SHAPES)


def _measured(
    of: str, question: tuple[str, ...], sizes: list[tuple[int, Path]], limit: int
) -> Iterator[dict[str, Any]]:
    shown = " ".join(word for word in question if "{" not in word and word not in ("-o", "--to"))
    before: Cost | None = None
    for size, path in sizes:
        cost = _cost(question, path, limit)
        known = before is not None and before.cpu_s and cost.cpu_s
        ratio = round(cost.cpu_s / before.cpu_s, 2) if known else None  # type: ignore[operator,union-attr]
        told = "did not end" if cost.cpu_s is None else f"{cost.cpu_s:8.2f} s {f'{ratio:.1f}x' if ratio else '':>7}"
        print(f"  {of:14} {shown:20} {size:>8} {told} {cost.peak_mb:8.0f} MB  exit {cost.status}", flush=True)
        yield {"what": f"{shown}, {of}", "size": size, **vars(cost), "ratio": ratio}
        before = cost


def _cost(question: tuple[str, ...], path: Path, limit: int) -> Cost:
    with tempfile.TemporaryDirectory() as folder:
        words = [word.format(out=f"{folder}/out", path=path) for word in question[1:]]
        command = [sys.executable, "-m", "stepscope", question[0], str(path), *words]
        command += [] if question[0] in ("stats",) else ["--no-cache"]
        environment = os.environ | {"STEPSCOPE_CACHE_DIR": f"{folder}/cache"}
        used, began = _cpu(), time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        peak = 0.0
        while process.poll() is None and time.monotonic() - began < limit:
            peak = max(peak, _memory(process.pid))
            time.sleep(0.05)
        if process.poll() is None:
            process.kill()
            process.wait()
            return Cost(None, round(peak), None)
        return Cost(round(_cpu() - used, 2), round(peak), process.returncode)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _memory(pid: int) -> float:
    """The highest that the process itself has had, MB."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:")), 0.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
