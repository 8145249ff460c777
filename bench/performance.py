"""`make bench`: the goals of docs/performance.md, each as a ratio measured in one run, written there as a table.

    make bench                               measure, and write docs/performance.md: some minutes on a quiet machine
    make bench ARGS=--print                  measure, and print the table instead
    make bench ARGS="--only kineto,stats"    only these parts: open, questions, conclude, stats, kineto

Where a tool is missing that a goal compares with, its row says so. The same is asked of an earlier commit, 6e47068,
with its source under .bench/.
"""

from __future__ import annotations

import argparse
import datetime
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import bench_stats
import commands
import programs
import rows
import traces
from measure import Failed, Sample
from programs import Timing

PAGE = programs.ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- written by make bench -->", "<!-- end of what make bench writes -->"
EARLIER = "6e47068"
CACHE = traces.HOME / "bench-cache"


@dataclass(frozen=True)
class Line:
    """A goal, and how far it is met. `limit` is None for figures that are not goals; `least` where more is better."""

    what: str
    unit: str
    limit: float | None
    now: float | None
    cpu: float | None = None
    earlier: float | None = None
    peak_mb: float | None = None
    most_mb: float | None = None
    least: bool = False
    why_not: str = ""

    @property
    def met(self) -> str:
        if self.now is None or self.limit is None:
            return ""
        enough = self.now >= self.limit if self.least else self.now <= self.limit
        fits = self.most_mb is None or self.peak_mb is None or self.peak_mb <= self.most_mb
        return "yes" if enough and fits else "no"

    def cells(self) -> list[str]:
        wanted = "" if self.limit is None else f"{'≥' if self.least else '≤'} {self.limit:g} ×"
        wanted += f", ≤ {self.most_mb:g} MB" if self.most_mb else ""
        figures = [f"{v:.2f} ×" if v is not None else "" for v in (self.now, self.cpu, self.earlier)]
        if self.now is None:
            figures[0] = self.why_not or "not measured"
        peak = f"{self.peak_mb:.0f} MB" if self.peak_mb else ""
        return [self.what, wanted, figures[0], self.met, figures[1], figures[2], peak, self.unit]


@dataclass(frozen=True)
class Run:
    """How often each is measured, and where the source of the earlier commit is."""

    runs: int
    earlier: Path | None

    def now(self, trace: Path, small: Path, more: int = 0) -> Timing:
        return Timing(trace, small, runs=self.runs + more, cache=CACHE)

    def then(self, trace: Path, small: Path) -> Timing | None:
        """The earlier commit, once less often: it is not a goal."""
        if self.earlier is None:
            return None
        return Timing(trace, small, self.earlier, max(1, self.runs - 1), CACHE / EARLIER)


Part = Callable[[Run], list[Line]]


def opening(run: Run) -> list[Line]:
    """Reading ops, calls and ranges, for one rank and for eight."""
    lines = []
    for ranks, trace in (("8 ranks", traces.million()), ("1 rank", traces.million_of_one())):
        timing, before = run.now(trace, traces.small()), run.then(trace, traces.small())
        scan = run.now(trace, traces.small(), more=2).scan()
        for what, limit, measured in (("open, no cache", 1.8, _opened), ("open, warm cache", 0.25, Timing.warm)):
            now, then = measured(timing), _try(measured, before)
            lines.append(_line(f"{what}, {ranks}", "SQLite's scan", limit, now, scan, then))
    return lines


def questions(run: Run) -> list[Line]:
    """Each question about one window: what it costs beyond opening, in scans."""
    timing, before = run.now(traces.million(), traces.small()), run.then(traces.million(), traces.small())
    scan, opened = run.now(traces.million(), traces.small(), more=2).scan(), _opened(timing)
    opened_before = _try(_opened, before)
    lines = []
    for question in programs.QUESTIONS:
        body = programs.asked(question)
        sample, then = timing.of(body), _try(lambda t, body=body: t.of(body), before)  # type: ignore[misc]
        lines.append(
            Line(
                f"`{question.replace('_', '-')}`, beyond opening",
                "SQLite's scan",
                0.5,
                (sample.seconds - opened.seconds) / scan.seconds,
                (sample.cpu_seconds - opened.cpu_seconds) / scan.cpu_seconds,
                (then.seconds - opened_before.seconds) / scan.seconds if then and opened_before else None,
                sample.peak_mb,
            )
        )
    return lines


def conclusions(run: Run) -> list[Line]:
    """`diagnose`, the report and the first page of `serve`, beside opening."""
    timing, before = run.now(traces.million(), traces.small()), run.then(traces.million(), traces.small())
    opened = _opened(timing)
    body = programs.asked("diagnose")
    lines = [
        _line("`diagnose`", "open, no cache", 3, timing.of(body), opened, _try(lambda t: t.of(body), before)),
        _line("`report`", "open, no cache", 5, commands.report(timing), opened, _try(commands.report, before), 1000),
    ]
    try:
        lines.append(_line("`serve`, first page", "open, no cache", 5, commands.first_page(timing), opened, None, 1000))
    except (Failed, OSError, subprocess.SubprocessError) as error:
        lines.append(Line("`serve`, first page", "open, no cache", 5, None, most_mb=1000, why_not=str(error)))
    return lines


def stats(run: Run) -> list[Line]:
    """Six reports beside nsys, both as whole processes."""
    what, unit = "six reports of `stats`, whole process", "nsys stats ÷ ours"
    context = rows.Context(traces.million(), 3, CACHE)
    try:
        theirs = bench_stats.nsys(context)
    except (rows.Skipped, Failed) as error:
        return [Line(what, unit, 40, None, least=True, why_not=str(error))]
    ours = commands.stats(programs.SOURCE, run.runs + 2)
    then = commands.stats(run.earlier, run.runs) if run.earlier else None
    return [_times(what, unit, 40, theirs, ours, then)]


def kineto(run: Run) -> list[Line]:
    """A torch.profiler trace beside another reader of it, both after their imports."""
    trace, small = traces.kineto(), traces.small_kineto()
    ours = _opened(run.now(trace, small, more=2))
    what, unit = "open a torch.profiler trace of 213 MB", "traceinsight ÷ ours"
    try:
        theirs = rows.traceinsight(rows.Context(traces.kineto(), 1, CACHE))
    except (rows.Skipped, Failed) as error:
        return [Line(what, unit, 12, None, peak_mb=ours.peak_mb, most_mb=300, least=True, why_not=str(error))]
    return [_times(what, unit, 12, theirs, ours, _try(_opened, run.then(trace, small)), 300)]


def _opened(timing: Timing) -> Sample:
    return timing.of(programs.OPENED)


PARTS: dict[str, Part] = {
    "open": opening,
    "questions": questions,
    "conclude": conclusions,
    "stats": stats,
    "kineto": kineto,
}


def _line(
    what: str, unit: str, limit: float, now: Sample, base: Sample, then: Sample | None, most_mb: float | None = None
) -> Line:
    cpu = now.cpu_seconds / base.cpu_seconds if now.cpu_seconds else None
    earlier = then.seconds / base.seconds if then else None
    return Line(what, unit, limit, now.seconds / base.seconds, cpu, earlier, now.peak_mb, most_mb)


def _times(
    what: str, unit: str, limit: float, theirs: Sample, ours: Sample, then: Sample | None, most_mb: float | None = None
) -> Line:
    """How many times as fast as another tool."""
    earlier = theirs.seconds / then.seconds if then else None
    faster, cpu = theirs.seconds / ours.seconds, theirs.cpu_seconds / ours.cpu_seconds
    return Line(what, unit, limit, faster, cpu, earlier, ours.peak_mb, most_mb, least=True)


def _try(run: Callable[[Timing], Sample], timing: Timing | None) -> Sample | None:
    """What the earlier commit takes; None where it has no answer."""
    if timing is None:
        return None
    try:
        return run(timing)
    except (Failed, OSError) as error:
        print(f"  {EARLIER}: {error}", flush=True)
        return None


def _earlier() -> Path | None:
    """The source of the earlier commit, unpacked under .bench/."""
    tree = traces.HOME / EARLIER
    if not (tree / "src").is_dir():
        packed = subprocess.run(["git", "archive", EARLIER, "src"], cwd=programs.ROOT, capture_output=True)
        if packed.returncode:
            print(f"{EARLIER} is not measured: {packed.stderr.decode().strip()}", file=sys.stderr)
            return None
        tree.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(tree, filter="data")
    return tree / "src"


def table(lines: list[Line]) -> str:
    machine = programs.machine()
    head = ["goal", "wanted", "measured", "met", "in CPU time", f"at {EARLIER}", "peak memory", "ratio to"]
    drawn = [head, ["---"] * len(head), *(line.cells() for line in lines)]
    load = os.getloadavg()[0]
    about = (
        f"{datetime.date.today().isoformat()}, {machine['cores']} cores ({machine['cpu']}), Python {machine['python']};"
        f" load at the end {load:.1f}."
    )
    return "\n".join([about, "", *(f"| {' | '.join(cells)} |" for cells in drawn)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--print", action="store_true", dest="printed", help="print the table, write nothing")
    parser.add_argument("--only", default="", help=f"only these parts, by comma: {', '.join(PARTS)}; implies --print")
    parser.add_argument("--runs", type=int, default=3, help="runs of each (default 3); the best counts")
    args = parser.parse_args()
    if unknown := set(filter(None, args.only.split(","))) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    run, lines = Run(args.runs, _earlier()), []
    try:
        for name, part in PARTS.items():
            if not args.only or name in args.only.split(","):
                found = part(run)
                for line in found:
                    print(" | ".join(line.cells()), flush=True)
                lines += found
    finally:
        shutil.rmtree(CACHE, ignore_errors=True)
    if args.printed or args.only:
        return 0
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table(lines)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    print(f"written: {PAGE.relative_to(programs.ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
