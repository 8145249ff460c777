"""Damaged inputs by the thousand: `make fuzz ARGS="--count 2000 --seed 1"`. Prints how questions about them ended.

Every mutant is a good input (`good_inputs`) with one to three defects (`mutate_*`); questions are asked of it
(`ask_mutant`). Only answers and errors in one line may come out, no figure that cannot be, and no other figure in
silence (`oracle`). Exit status 1 where something else did. `--only INDEX` makes one of them again, and `--keep DIR`
leaves its files there. `--save` writes what docs/reliability.md shows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
os.environ["POLARS_MAX_THREADS"] = "1"  # workers are as many as cores

import pool  # noqa: E402

RESULTS = HERE.parent / "reliability" / "results" / "fuzz.json"
KINDS = (
    *("sqlite", "parquet", "kineto", "gzip", "pftrace", "chrome", "folder", "ncu-csv", "ncu-rep", "snapshot", "log"),
    "flight",
    *("compile-log", "labels", "limits", "model", "taxonomy", "baseline", "manifest", "cache"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Damaged inputs by the thousand, and how questions about them end.")
    parser.add_argument("--count", type=int, default=1000, help="inputs")
    parser.add_argument("--first", type=int, default=0, metavar="INDEX", help="index of the first one")
    parser.add_argument("--seed", type=int, default=0, help="other inputs by the same indices")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1), help="processes; they wait for threads")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only these kinds of input")
    parser.add_argument("--only", type=int, metavar="INDEX", help="this input alone, in this process")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="with --only: leave its files there")
    parser.add_argument("--show", type=int, default=40, help="kinds of failure to list")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.relative_to(HERE.parents[1])}")
    parser.add_argument(
        "--guided", metavar="READER", help="coverage-guided, of one reader (needs atheris): see guided.py"
    )
    parser.add_argument("--good", action="store_true", help="undamaged traces, any options: see good_questions.py")
    parser.add_argument("--relations", action="store_true", help="changes with a known effect: see relations.py")
    if "--good" in sys.argv or "--relations" in sys.argv:
        script, further = ("good_questions.py", "--good") if "--good" in sys.argv else ("relations.py", "--relations")
        return subprocess.call([sys.executable, str(HERE / script), *(a for a in sys.argv[1:] if a != further)])
    given, further = parser.parse_known_args()
    if given.guided:
        return subprocess.call([sys.executable, str(HERE / "guided.py"), given.guided, *further])
    if further:
        parser.error(f"unrecognized: {' '.join(further)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # workers end, and the folder goes, by any signal
    room = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="stepscope-fuzz-", dir=room if os.access(room, os.W_OK) else None))
    try:
        plan = pool.Plan(folder, given.seed, given.kind)
        pool.prepare(plan)
        return _only(plan, given) if given.only is not None else _many(plan, given)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _only(plan: pool.Plan, given: argparse.Namespace) -> int:
    made = pool.factory(plan, 0)
    record = pool.tried(plan, made, given.only)
    print(json.dumps(record, indent=1, ensure_ascii=False))
    if given.keep is not None:
        shutil.copytree(plan.folder / "mutant0", given.keep)
    return 1 if record["failures"] else 0


def _many(plan: pool.Plan, given: argparse.Namespace) -> int:
    tally = Tally(" ".join([f"--seed {given.seed}", *(f"--kind {k}" for k in given.kind or ())]))
    try:
        for record in pool.run(plan, given.first, given.count, given.jobs):
            tally.add(record)
    except (KeyboardInterrupt, SystemExit):  # a run that is cut short tells how far it came
        print("interrupted")
    tally.print(given.show)
    if given.save:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(tally.result(), indent=1) + "\n", "utf-8")
    return 1 if tally.failures else 0


class Tally:
    """Counts of how inputs ended."""

    def __init__(self, options: str) -> None:
        self._options, self._began = options, time.monotonic()
        self._ended: Counter[tuple[str, str]] = Counter()
        self._took: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        self._sorts: Counter[str] = Counter()
        self._effects: Counter[str] = Counter()
        self._count = 0
        self.failures: dict[str, list[int]] = {}

    def add(self, record: dict[str, Any]) -> None:
        self._count += 1
        self._ended[record["kind"], record["ended"]] += 1
        self._took[record["kind"]] += record["s"]
        self._effects[record.get("effect", "free")] += 1
        self._asked.update(dict(zip(("answered", "cannot", "refused"), record.get("asked", ()), strict=False)))
        self._sorts.update({sort for sort, _, _ in record["failures"]})
        for sort, question, text in record["failures"]:
            what = f"{sort}: {text}"
            if what not in self.failures:
                print(f"{question}: {what}\n     {record['kind']} {record['said']}", end="\n     ")
                print(f'make fuzz ARGS="{self._options} --only {record["index"]}"', flush=True)
            self.failures.setdefault(what, []).append(record["index"])
        if self._count % 1000 == 0:
            print(f"{self._count} inputs in {time.monotonic() - self._began:.0f} s", flush=True)

    def print(self, show: int) -> None:
        for kind in (*KINDS, "?"):
            ended = {what: self._ended[kind, what] for what in ("answered", "refused", "failed")}
            if count := sum(ended.values()):
                told = "  ".join(f"{what} {n:6}" for what, n in ended.items())
                print(f"{kind:12} {told}  {1e3 * self._took[kind] / count:6.0f} ms each")
        for failure, seen in sorted(self.failures.items(), key=lambda item: -len(item[1]))[:show]:
            print(f"{len(seen):4} × {failure} ({', '.join(map(str, seen[:6]))})")
        print(f"{self._count} inputs in {time.monotonic() - self._began:.0f} s; questions: {dict(self._asked)}")
        print(f"by what may become of figures: {dict(self._effects)}; failures: {dict(self._sorts)}")

    def result(self) -> dict[str, Any]:
        """What docs/reliability.md shows."""
        kinds = {
            kind: {what: self._ended[kind, what] for what in ("answered", "refused", "failed")}
            for kind in KINDS
            if any(k == kind for k, _ in self._ended)
        }
        return {
            "suite": "fuzz",
            "inputs": self._count,
            "minutes": round((time.monotonic() - self._began) / 60, 1),
            "options": self._options,
            "kinds": kinds,
            "questions": dict(self._asked),
            "effects": dict(self._effects),
            **{sort: self._sorts[sort] for sort in ("unexpected", "hang", "impossible", "silent")},
        }


if __name__ == "__main__":
    sys.exit(main())
