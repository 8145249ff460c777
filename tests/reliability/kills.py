"""Signals at any moment of commands that write: nothing is damaged, left running or left lying about.

python tests/reliability/kills.py [quick|full|POINTS]

A point is one run that gets one signal (SIGKILL, SIGINT, SIGTERM, SIGHUP) at one moment between its start and a little
after its end. After each: outputs are whole or absent; no process is left; no remains, where the process could clear
them away; and the exit status is that of the signal, or of a run that was over before. Every few points of SIGKILL the
command runs to its end in the same place, with the same cache: then its answer is right, and nothing of the killed ones
is left. The figures go to results/kills.json.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULT = HERE / "results" / "kills.json"
POINTS = {"quick": 60, "full": 520}

SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: What Python says where it is interrupted before it runs a line of any program; its exit status is 1.
STARTING = r"init_import_site|Could not import runpy module"
#: Kinds whose points are tried at the same time.
AT_ONCE = 3
#: What nsys leaves in the temporary folder: its locks, and raw reports, where it is ended while it begins or ends one.
OF_NSYS = ("nvidia", "nsys-report-")
#: What it says where it fails by itself, as it does on a machine that is loaded.
OF_NSYS_ITSELF = "SystemException"
#: Every so many points the command runs to its end.
BATCH = 8
#: Processes of a capture get so long to end: first they are asked, then killed.
PATIENCE_S = 60.0
#: In the environment of everything that a point starts.
MARK = "STEPSCOPE_KILL_POINT"
_STATS = ("-r", "cuda_gpu_trace", "-f", "csv", "--force-overwrite")
JOB = ("--schedule", "1f1b", "--pp", "2", "--ep", "1", "--layers", "2", "--micro-batches", "2", "--steps", "3")


@dataclass(frozen=True)
class Kind:
    """A command that writes: its words, which run in a folder of their own, and what it leaves there."""

    words: Callable[[Path], list[str]]
    outputs: tuple[str, ...]
    share: int = 1
    standing: tuple[str, ...] = ()  # programs that stand in for others, on the PATH


def _train(trace: Path) -> list[str]:
    return [sys.executable, str(trace.parent / "train.py")]


def _capture(*options: str) -> Callable[[Path], list[str]]:
    return lambda trace: ["capture", "run", *options, "--no-verify", "--yes", "-o", "cap", "--", *_train(trace)]


KINDS = {
    "answer": Kind(lambda t: ["kernels", str(t), "-o", "a.json"], ("a.json",), 4),
    "report": Kind(lambda t: ["report", str(t), "-o", "a.html"], ("a.html",), 2),
    "workers": Kind(lambda t: ["collectives", *_ranks(t), "--jobs", "2", "-o", "a.csv"], ("a.csv",), 1),
    "stats": Kind(lambda t: ["stats", str(t), *_STATS, "-o", "a"], ("a_cuda_gpu_trace.csv",), 3),
    "recipe": Kind(lambda t: ["recipe", "cuda_gpu_kern_sum", str(t), "-o", "a", "--force"], ("a/",), 2),
    "baseline": Kind(lambda t: ["gate", str(t), "--save", "b.json"], ("b.json",), 3),
    "export": Kind(lambda t: ["export", str(t), "-o", "a.pftrace", "--no-findings"], ("a.pftrace",), 2),
    "tables": Kind(lambda t: ["export", str(t), "-o", "a.parquet"], ("a.parquet/",), 2),
    "simulate": Kind(lambda t: ["simulate", *JOB, "--write", "nsys,kineto", "-o", "job"], ("job/",), 5),
    "skills": Kind(lambda t: ["skill", "install", "--to", "s"], ("s/",), 10),
    "capture": Kind(_capture("--trigger", "nvtx", "--no-doctor"), ("cap/",), 4, standing=("nsys",)),
    "capture-nsys": Kind(_capture("--trigger", "none", "--trace", "nvtx", "--no-doctor"), ("cap/",), 1),
}


def _ranks(trace: Path) -> list[str]:
    return sorted(map(str, trace.parent.glob("rank*.pt.trace.json.gz")))


@dataclass
class Tally:
    """What was found, by what went wrong."""

    runs: Counter[str] = field(default_factory=Counter)
    signals: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, list[str]] = field(
        default_factory=lambda: {"damaged": [], "left_processes": [], "debris": [], "wrong_exit": []}
    )
    swept: int = 0
    before_us: int = 0
    by_nsys: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, name: str, sent: str) -> None:
        with self.lock:
            self.runs[name] += 1
            self.signals[sent] += 1

    def add(self, what: str, said: str) -> None:
        self.wrong[what].append(said)
        print(f"{what}: {said}", flush=True)


class Place:
    """Where one kind of command runs: its folder, cache and temporary folder."""

    def __init__(self, root: Path, name: str, trace: Path) -> None:
        self.name, self.kind, self.trace = name, KINDS[name], trace
        self.out, self.cache, self.tmp = (root / name / part for part in ("out", "cache", "tmp"))
        self.empty()
        self.seconds, self.status, self.right = 0.0, 0, {}
        for _ in range(2):  # the second has the code of libraries in memory
            self.empty()
            began = time.monotonic()
            self.status = self.finish()
            self.seconds = time.monotonic() - began
        self.right = dict(_files(self.out))

    def empty(self) -> None:
        for folder in (self.out, self.cache, self.tmp):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)

    def start(self, token: str) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(
            [str(self.trace.parent / "bin"), os.environ["PATH"]] if self.kind.standing else [os.environ["PATH"]]
        )
        env = {
            **os.environ, "PATH": path, "TMPDIR": str(self.tmp), "STEPSCOPE_CACHE_DIR": str(self.cache), MARK: token,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(self.trace.parent / "lib")]),
        }  # fmt: skip
        words = [sys.executable, "-m", "stepscope", *self.kind.words(self.trace)]
        return subprocess.Popen(
            words, cwd=self.out, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip

    def finish(self) -> int:
        """Run it to its end."""
        if self.name.startswith("capture"):  # it writes into no folder that is there
            shutil.rmtree(self.out / "cap", ignore_errors=True)
        done = self.start("whole")
        said = done.communicate(timeout=600)[1]
        if done.returncode:
            print(f"{self.name} does not run here: {said.decode(errors='replace').strip()[-300:]}", flush=True)
        return done.returncode

    def damaged(self) -> list[str]:
        """Outputs that are there, and not whole."""
        found = dict(_files(self.out))
        bad = []
        for output in self.kind.outputs:
            mine = {n: d for n, d in found.items() if n == output or (output.endswith("/") and n.startswith(output))}
            if self.name.startswith("capture"):
                whole = not mine or set(mine) == {"cap/log.txt"} or _is_capture(mine)
                bad += [] if whole else sorted(mine)
            elif self.name == "skills":  # files of their own
                bad += [n for n, d in mine.items() if d != self.right[n]]
            elif mine and mine.keys() != {n for n in self.right if n == output or n.startswith(output)}:
                bad.append(f"{output}: only {', '.join(mine)}")
            else:
                bad += [n for n, d in mine.items() if d != self.right[n] and not _readable(n, d, self.right[n])]
        return bad

    def debris(self) -> list[str]:
        """What lies about that nobody asked for."""
        expected = {output.rstrip("/").split("/")[0] for output in self.kind.outputs}
        beside = [p.name for p in self.out.iterdir() if p.name not in expected]
        inside = [str(p.relative_to(self.out)) for p in self.out.rglob(".*") if p.parent != self.out]
        left = [f"tmp/{p.name}" for p in self.tmp.iterdir() if not p.name.startswith(OF_NSYS)]
        cached = [f"cache/{p.name}" for p in self.cache.rglob("*.tmp")]
        return [*beside, *inside, *left, *cached]

    def unfinished(self) -> int:
        """Raw reports that nsys itself left, which ended before anybody could see where it wrote to. They go here."""
        found = list(self.tmp.glob(f"{OF_NSYS[1]}*"))
        for path in found:
            path.unlink()
        return len(found)


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(
            p.startswith(".") and p.endswith(".part") for p in path.relative_to(folder).parts
        ):
            yield str(path.relative_to(folder)), path.read_bytes()


def _is_capture(files: dict[str, bytes]) -> bool:
    return "captured" in json.loads(files.get("cap/manifest.json", b"{}"))


def _readable(name: str, data: bytes, right: bytes) -> bool:
    """Whole, though not to the byte the same: figures of floats may differ in the last digit."""
    try:
        if name.endswith(".json"):
            return bool(json.loads(data))
        if name.endswith(".parquet"):
            return pl.read_parquet(data).height == pl.read_parquet(right).height
        return len(data) > 0.99 * len(right) and data[-20:] == right[-20:]
    except (ValueError, pl.exceptions.PolarsError):
        return False


def alive(token: str) -> list[str]:
    """Command lines of the processes that a point started and that still run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={token}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    found.append(f"{entry.name} {(entry / 'cmdline').read_bytes().replace(bytes(1), b' ')[:160]!r}")
        except OSError:
            continue
    return found


def point(place: Place, sent: signal.Signals, moment: float, tally: Tally, number: str) -> None:
    """One run, one signal; `moment` is a share of how long it takes."""
    token = f"{os.getpid()}-{number}"
    where = f"{place.name} {sent.name} at {moment:.0%}"
    there = set(place.debris())  # of those that were killed before, until one of them writes again
    process, early = place.start(token), True
    try:
        process.wait(moment * place.seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(sent)
        early = False
    said = process.communicate(timeout=600)[1].decode(errors="replace")
    tally.count(place.name, sent.name)
    # A process that is just being made, or had not yet taken its signals over, dies of the signal itself.
    if sent == signal.SIGINT and re.search(STARTING, said):
        tally.before_us += 1  # Python itself was still starting, and says so: no code of ours ran
    elif early and process.returncode == 2 and OF_NSYS_ITSELF in said:
        tally.by_nsys += 1
    elif process.returncode not in {place.status, -sent, 128 + sent} or "this is a bug" in said:
        tally.add("wrong_exit", f"{where}: {process.returncode}, {said.strip()[-200:]}")
    until = time.monotonic() + PATIENCE_S
    while (left := alive(token)) and time.monotonic() < until:
        time.sleep(0.1)
    for line in left:
        tally.add("left_processes", f"{where}: {line}")
        os.kill(int(line.split()[0]), signal.SIGKILL)
    tally.by_nsys += place.unfinished()
    for name in place.damaged():
        tally.add("damaged", f"{where}: {name}")
    if sent != signal.SIGKILL:
        for name in set(place.debris()) - there:
            tally.add("debris", f"{where}: {name}")


def settle(place: Place, tally: Tally) -> None:
    """Run it to its end where others were killed: it is right, and they are gone."""
    tally.swept += len(place.debris())
    time.sleep(1.1)  # younger files of the cache may be about to be locked
    if place.finish() != place.status:
        tally.add("wrong_exit", f"{place.name}: fails where others were killed")
    for name in place.damaged():
        tally.add("damaged", f"{place.name} after kills: {name}")
    if not place.name.startswith("capture") and dict(_files(place.out)).keys() != place.right.keys():
        tally.add("damaged", f"{place.name} after kills: other files than before")
    for name in place.debris():
        tally.add("debris", f"{place.name} after kills: {name}")
    place.empty()


def prepare(folder: Path) -> Path:
    """A trace, a job of its ranks, a training script that needs no torch, and an nsys that only runs it."""
    sys.path.insert(0, str(ROOT / "tests"))
    from stepscope.simulate.job.scenario import Scenario
    from stepscope.simulate.run import simulate_to

    job = Scenario(schedule="1f1b", pp=2, ep=1, layers=2, micro_batches=2, steps=3)
    simulate_to(job, folder, ("nsys", "kineto"))
    spec = importlib.util.spec_from_file_location("stand_ins", ROOT / "tests" / "capture" / "conftest.py")
    assert spec is not None and spec.loader is not None
    stand_ins = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stand_ins)
    (folder / "lib" / "__pycache__").mkdir(parents=True)  # made later, it would look like a change
    (folder / "lib" / "nvtx.py").write_text(stand_ins.NVTX)
    (folder / "train.py").write_text(stand_ins.TRAIN.format(steps=9, die=-1, sleep=0.05))
    (folder / "bin").mkdir()
    nsys = folder / "bin" / "nsys"
    nsys.write_text(
        stand_ins.NSYS.format(
            python=sys.executable, version="2026.1.1", paranoid=1, options="", metrics="", after="", size=1
        )
    )
    nsys.chmod(0o755)
    return folder / "node0.sqlite"


def run(points: int, tally: Tally, names: list[str] | None = None) -> None:
    with tempfile.TemporaryDirectory(prefix="kills-") as root:
        (Path(root) / "input").mkdir()
        trace = prepare(Path(root) / "input")
        before = {p.name: p.stat().st_mtime_ns for p in trace.parent.iterdir()}
        chosen = names or list(KINDS)
        if shutil.which("nsys") is None:
            chosen = [name for name in chosen if name != "capture-nsys"]
        shares = sum(KINDS[name].share for name in chosen)
        mine = {name: max(len(SIGNALS), -(-points * KINDS[name].share // shares)) for name in chosen}
        for sent in SIGNALS[1:]:  # who starts this under nohup, or in the background, has them ignored
            if signal.getsignal(sent) is signal.SIG_IGN:
                signal.signal(sent, signal.SIG_DFL)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda name: _all_of(Path(root), name, trace, mine[name], tally), chosen))
        if {p.name: p.stat().st_mtime_ns for p in trace.parent.iterdir()} != before:
            tally.add("damaged", "the inputs, or something beside them")


def _all_of(root: Path, name: str, trace: Path, points: int, tally: Tally) -> None:
    """The points of one kind."""
    place = Place(root, name, trace)
    if place.status:
        tally.add("wrong_exit", f"{name}: status {place.status} without any signal")
        return
    place.empty()
    for n in range(points):
        # Spread evenly over the run and a little more, each signal over all of it.
        point(place, SIGNALS[n % len(SIGNALS)], 1.1 * ((n + 1) * 0.6180339887 % 1.0), tally, f"{name}-{n}")
        if n % BATCH == BATCH - 1 or n == points - 1:
            settle(place, tally)
        elif place.name.startswith("capture"):
            shutil.rmtree(place.out / "cap", ignore_errors=True)
    print(f"{name}: {points} points, {place.seconds:.1f} s a run", flush=True)


def main(given: str) -> int:
    points = POINTS[given] if given in POINTS else int(given)
    tally, began = Tally(), time.monotonic()
    run(points, tally)
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    figures = {
        "suite": "kills",
        "runs": sum(tally.runs.values()),
        **{what: len(said) for what, said in tally.wrong.items()},
        "seconds": round(time.monotonic() - began),
        "commit": commit.stdout.strip(),
        "swept_after_sigkill": tally.swept,
        "failures_and_remains_of_nsys": tally.by_nsys,
        "sigint_while_python_starts": tally.before_us,
        "by_kind": dict(tally.runs),
        "by_signal": dict(tally.signals),
    }
    print(json.dumps(figures, indent=1))
    if given != "quick":
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(json.dumps(figures, indent=1) + "\n")
    return 1 if any(tally.wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main((sys.argv[1:] or ["full"])[0]))
