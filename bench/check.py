"""`make bench-check`: did a change make something slower? Ratios to a yardstick of the same run, beside committed ones.

    make bench-check                         a few minutes; exit 1 where something became slower by more than 15 %
    make bench-check ARGS=--save             take what is measured as the new baseline
    make bench-check ARGS="--only kineto"    only rows whose name contains this

The yardsticks are SQLite's scan of the same columns and a plain decoding of the same JSON. Of five runs, each a fresh
process, the best counts, in wall and in CPU time. What looks slower is measured again before it is said. Wall times
depend on cores: where their number is not that of the baseline, only CPU time and memory are judged.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import programs
import traces
from measure import Failed, Sample
from programs import Timing

BASELINE = Path(__file__).with_name("baseline.json")
RUNS = 5
#: By how much a figure may differ from the baseline before it is named.
TOLERANCE = 0.15
#: What differs by less is noise, however large a part it is.
_SMALLEST_RATIO, _SMALLEST_MB = 0.03, 20


@dataclass(frozen=True)
class Figure:
    """What one row costs: times as multiples of the yardstick, and the peak of memory."""

    wall: float
    cpu: float
    peak_mb: float


@dataclass(frozen=True)
class Row:
    """Something that is measured: its trace's yardstick, and how."""

    name: str
    yardstick: str
    run: Callable[[Timing], Sample]


def _of(body: str) -> Callable[[Timing], Sample]:
    return lambda timing: timing.of(body)


SCAN, SCAN_OF_ONE, DECODE = "SQLite's scan, 8 ranks", "SQLite's scan, 1 rank", "JSON decoded"
ROWS = (
    Row("open, 8 ranks", SCAN, _of(programs.OPENED)),
    Row("open, 1 rank", SCAN_OF_ONE, _of(programs.OPENED)),
    Row("open warm, 8 ranks", SCAN, Timing.warm),
    *(Row(q, SCAN, _of(programs.asked(q))) for q in ("window", "overlap", "idle", "kernels", "nvtx", "critical_path")),
    Row("diagnose", SCAN, _of(programs.asked("diagnose"))),
    Row("stats, six reports", SCAN, _of(programs.STATS)),
    Row("open, kineto", DECODE, _of(programs.OPENED)),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="write the baseline instead of comparing with it")
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"runs of each (default {RUNS}); the best counts")
    args = parser.parse_args()
    rows = [row for row in ROWS if args.only in row.name]
    baseline = json.loads(BASELINE.read_text("utf-8")) if BASELINE.exists() else {"machine": {}, "rows": {}}
    cache = traces.HOME / "check-cache"
    try:
        figures = _measured(rows, args.runs, cache)
        if args.save:
            _save(baseline, figures)
            return 0
        judged = {name: _judged(baseline, name, figure) for name, figure in figures.items()}
        doubtful = [row for row in rows if judged.get(row.name, ("", ""))[0] == "slower"]
        if doubtful:
            print("measured again:")
            again = _measured(doubtful, args.runs, cache)
            figures |= {name: _better(figures[name], figure) for name, figure in again.items()}
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    return _told(baseline, figures, {row.name for row in rows} - set(figures))


def _measured(rows: list[Row], runs: int, cache: Path) -> dict[str, Figure]:
    """Every row after its yardstick, which is measured before the first of its rows."""
    timings = {
        SCAN: Timing(traces.million(), traces.small(), runs=runs, cache=cache),
        SCAN_OF_ONE: Timing(traces.million_of_one(), traces.small(), runs=runs, cache=cache),
        DECODE: Timing(traces.kineto(), traces.small_kineto(), runs=runs, cache=cache),
    }
    yardsticks: dict[str, Sample] = {}
    figures: dict[str, Figure] = {}
    for row in rows:
        timing = timings[row.yardstick]
        try:
            if row.yardstick not in yardsticks:
                decode = row.yardstick == DECODE
                yardsticks[row.yardstick] = timing.of(programs.DECODED) if decode else timing.scan()
                print(f"{row.yardstick}: {yardsticks[row.yardstick].seconds:.2f} s", flush=True)
            base, sample = yardsticks[row.yardstick], row.run(timing)
        except Failed as error:
            print(f"  {row.name}: failed, {error}")
            continue
        figure = Figure(
            round(sample.seconds / base.seconds, 3),
            round(sample.cpu_seconds / base.cpu_seconds, 3),
            round(sample.peak_mb or 0),
        )
        figures[row.name] = figure
        print(f"  {row.name:22} {figure.wall:6.2f}x wall {figure.cpu:6.2f}x CPU {figure.peak_mb:6.0f} MB", flush=True)
    return figures


def _better(one: Figure, other: Figure) -> Figure:
    return Figure(min(one.wall, other.wall), min(one.cpu, other.cpu), min(one.peak_mb, other.peak_mb))


def _judged(baseline: dict[str, Any], name: str, figure: Figure) -> tuple[str, str]:
    """Whether a row is slower, faster or neither, and what it was and is."""
    before = baseline["rows"].get(name)
    if before is None:
        return "new", "not in the baseline: `make bench-check ARGS=--save` takes it in"
    same_cores = baseline["machine"].get("cores") == programs.machine()["cores"]
    changes = []
    for what, least in (("wall", _SMALLEST_RATIO), ("cpu", _SMALLEST_RATIO), ("peak_mb", _SMALLEST_MB)):
        was, now = before[what], getattr(figure, what)
        if (what == "wall" and not same_cores) or abs(now - was) < least:
            continue
        changes.append((now / was - 1, what, was, now))
    told = "; ".join(f"{what} {was:g} → {now:g} ({100 * part:+.0f} %)" for part, what, was, now in changes)
    if any(part > TOLERANCE for part, *_ in changes):
        return "slower", told
    if any(part < -TOLERANCE for part, *_ in changes):
        return "faster", told
    return "", told


def _told(baseline: dict[str, Any], figures: dict[str, Figure], failed: set[str]) -> int:
    judged = {name: _judged(baseline, name, figure) for name, figure in figures.items()}
    for verdict in ("new", "faster", "slower"):
        for name, (found, told) in judged.items():
            if found == verdict:
                print(f"{verdict}: {name}: {told}")
    slower = [name for name, (found, _) in judged.items() if found == "slower"]
    if slower or failed:
        print(f"{len(slower)} of {len(figures)} became slower or larger by more than {TOLERANCE:.0%}", end="")
        print(f"; failed: {', '.join(sorted(failed))}" if failed else "")
        return 1
    print(f"nothing of {len(figures)} became slower or larger by more than {TOLERANCE:.0%}")
    return 0


def _save(baseline: dict[str, Any], figures: dict[str, Figure]) -> None:
    rows = baseline["rows"] | {name: asdict(figure) for name, figure in figures.items()}
    written = {"machine": programs.machine(), "rows": {row.name: rows[row.name] for row in ROWS if row.name in rows}}
    BASELINE.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    print(f"{len(figures)} rows written to {BASELINE.relative_to(programs.ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
