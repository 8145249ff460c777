"""How much memory does each command take, and does it keep to a budget? Nothing here passes or fails by time.

    python bench/peaks.py                                   every command on .bench/million.sqlite, as it is
    python bench/peaks.py --memory 1GiB                     the same with that budget, in a cgroup with that limit
    python bench/peaks.py --memory 1GiB --against FILE      and whether the answers are those that were saved
    python bench/peaks.py --save FILE --only window,idle --trace TRACE

`peak` is what nobody but the process can give back: its anonymous memory, and of several processes the sum (files that
it maps are the kernel's to drop). It is read off a cgroup of the command's own, of either version, where one can be
made (as root, or in a delegated tree); a command that goes over its limit is killed there. Without a cgroup it is read
off /proc, and RLIMIT_DATA holds the limit: what is beyond it is refused to the process.

Every command is a fresh process, which reads the trace without cache unless --cache is given.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = Path(sys.executable).with_name("stepscope")
#: Seconds between two looks at the memory.
_LOOK_S = 0.01
_SQL = "SELECT rank, role, count(*) AS ops, sum(end_ns - start_ns) AS ns FROM ops GROUP BY ALL ORDER BY ALL"
_SQL_JOIN = (
    "SELECT o.rank, c.tid, count(*) AS ops, max(o.start_ns - c.start_ns) AS wait_ns FROM ops o JOIN calls c"
    " ON o.rank = c.rank AND o.correlation = c.correlation GROUP BY ALL ORDER BY ALL"
)
_REPORTS = (
    "cuda_gpu_kern_sum",
    "cuda_api_sum",
    "cuda_gpu_trace",
    "nvtx_sum",
    "cuda_kern_exec_sum",
    "nvtx_gpu_proj_sum",
)
#: Lines of a page that say when and by what it was made.
_VARIES = (b"generated", b"version")


@dataclass(frozen=True)
class Run:
    """What one command took and said."""

    peak_mb: float
    resident_mb: float
    cpu_s: float
    wall_s: float
    status: int
    answer: str


def commands(out: Path) -> dict[str, list[str]]:
    """By name: the words behind `stepscope`, with {trace} for the trace."""
    from stepscope import questions

    asked = {name: [name, "{trace}", "--format", "json"] for name in questions.names()}
    asked |= {f"stats {r}": ["stats", "{trace}", "--report", r, "--format", "json"] for r in _REPORTS}
    asked["sql"] = ["sql", "{trace}", _SQL, "--format", "json"]
    asked["sql join"] = ["sql", "{trace}", _SQL_JOIN, "--format", "json"]
    asked["compare"] = ["compare", "{trace}", "--to", "{trace}", "--format", "json"]
    asked["report.html"] = ["report", "{trace}", "-o", str(out / "page.html")]
    asked["report.md"] = ["report", "{trace}", "-o", str(out / "page.md")]
    for ending in ("pftrace", "json.gz", "parquet"):
        asked[f"export {ending}"] = ["export", "{trace}", "-o", str(out / f"job.{ending}")]
    return asked


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=ROOT / ".bench" / "million.sqlite")
    parser.add_argument("--memory", help="the budget, and the limit of the cgroup")
    parser.add_argument("--limit", help="the limit of the cgroup, where it is not the budget")
    parser.add_argument("--only", default="", help="commands, by comma")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--cache", action="store_true", help="with the user's cache")
    parser.add_argument("--timeout", type=float, default=1800)
    args = parser.parse_args()
    only = tuple(filter(None, args.only.split(",")))
    before: dict[str, str] = json.loads(args.against.read_text("utf-8")) if args.against else {}
    limit = _bytes(args.limit or args.memory) if args.limit or args.memory else None
    saved: dict[str, str] = {}
    other = 0
    print("| command | peak MB | resident MB | CPU s | wall s | answer |\n|---|---:|---:|---:|---:|---|", flush=True)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        for name, words in commands(Path(folder)).items():
            if only and name not in only and name.split()[0] not in only:
                continue
            more = [] if args.cache else ["--no-cache"]
            more += ["--memory", args.memory] if args.memory else []
            run = _run([w.format(trace=args.trace) for w in words] + more, Path(folder), limit, args.timeout)
            saved[name] = run.answer
            verdict = run.answer if name not in before else "equal" if run.answer == before[name] else "OTHER"
            other += verdict == "OTHER" or run.status < 0
            figures = f"{run.peak_mb:.0f} | {run.resident_mb:.0f} | {run.cpu_s:.1f} | {run.wall_s:.1f}"
            print(f"| {name} | {figures} | {verdict} |", flush=True)
    if args.save:
        args.save.write_text(json.dumps(saved, indent=0) + "\n", encoding="utf-8")
    return bool(other)


def _bytes(text: str) -> int:
    from stepscope.files.budget import parse

    return parse(text)


def _run(words: list[str], folder: Path, limit: int | None, timeout: float) -> Run:
    for old in folder.iterdir():
        subprocess.run(["rm", "-rf", old], check=True)
    start, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    out = folder / "stdout"
    with _place(limit) as place, out.open("wb") as stdout:
        child = subprocess.Popen(
            [*place.prefix, str(PROGRAM), *words], stdout=stdout, stderr=subprocess.PIPE, cwd=folder
        )
        watch = _Watch(child.pid, place)
        try:
            said = child.communicate(timeout=timeout)[1]
        except subprocess.TimeoutExpired:
            child.kill()
            said = b"took too long"
        child.wait()
        watch.stop()
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    answer = _answer(child.returncode, out, said or b"", folder, words)
    wall = time.perf_counter() - start
    return Run(watch.peak / 1e6, watch.resident / 1e6, cpu, wall, child.returncode, answer)


def _answer(status: int, out: Path, said: bytes, folder: Path, words: list[str]) -> str:
    """A hash of what was printed and written; the last line of what was said where it failed."""
    if status not in (0, 3):
        last = said.decode(errors="replace").strip().splitlines()
        return f"status {status}: {last[-1][:120] if last else ''}"
    digest = hashlib.sha256()
    if words[0] not in ("report", "export"):
        text = out.read_bytes()
        with suppress(ValueError):  # notes may come in another order, and sources say how long reading took
            found = json.loads(text)
            rows = found.get("rows", found) if isinstance(found, dict) else found
            text = json.dumps([rows, found.get("summary") if isinstance(found, dict) else None]).encode()
        digest.update(text)
    for file in sorted(p for p in folder.rglob("*") if p.is_file() and p != out):
        digest.update(file.name.encode() + _content(file))
    return digest.hexdigest()[:16]


def _content(file: Path) -> bytes:
    import gzip

    data = gzip.decompress(file.read_bytes()) if file.name.endswith(".gz") else file.read_bytes()
    return b"\n".join(line for line in data.split(b"\n") if not any(word in line for word in _VARIES))


# -- where it runs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A cgroup for one command, or none."""

    prefix: list[str]
    folder: Path | None = None
    v2: bool = False

    def anonymous(self) -> int:
        """Bytes that the processes in the cgroup hold, without files."""
        assert self.folder is not None
        wanted = {"anon", "shmem"} if self.v2 else {"total_rss"}
        stat = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        return sum(int(stat.get(name, 0)) for name in wanted)


@contextmanager
def _place(limit: int | None) -> Iterator[Place]:
    for base, v2 in ((Path("/sys/fs/cgroup/memory"), False), (Path("/sys/fs/cgroup"), True)):
        folder = base / f"stepscope-peaks-{os.getpid()}"
        try:
            if not (base / ("memory.stat" if v2 else "memory.limit_in_bytes")).exists():
                continue
            folder.mkdir()
        except OSError:
            continue
        try:
            if limit is not None:
                (folder / ("memory.max" if v2 else "memory.limit_in_bytes")).write_text(str(limit))
            enter = 'echo $$ > "$0" && exec "$@"'
            yield Place(["sh", "-c", enter, str(folder / "cgroup.procs")], folder, v2)
        finally:
            for _ in range(50):
                with suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.1)
        return
    kilo = "unlimited" if limit is None else str(limit // 1024)
    yield Place(["sh", "-c", f'ulimit -d {kilo} && exec "$0" "$@"'])


class _Watch:
    """Looks at the memory of a command until it is over."""

    def __init__(self, pid: int, place: Place) -> None:
        self.peak = self.resident = 0
        self._pid, self._place = pid, place
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_S):
            with suppress(OSError, ValueError):
                status = _status(self._pid)
                self.resident = max(self.resident, status.get("VmHWM", 0))
                own = status.get("RssAnon", 0) + status.get("RssShmem", 0)
                self.peak = max(self.peak, own if self._place.folder is None else self._place.anonymous())


def _status(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields: dict[str, Any] = dict(line.split(":", 1) for line in lines if ":" in line)
    return {k: int(v.split()[0]) * 1024 for k, v in fields.items() if v.strip().endswith("kB")}


if __name__ == "__main__":
    sys.exit(main())
