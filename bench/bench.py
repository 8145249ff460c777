"""`make bench-rows`: how long opening takes, as ratios measured in one run; then questions across 64 and 512 ranks.

    make bench-rows                          a million kernels, a million torch events, 512 ranks (2.5 GB of disk)
    make bench-rows ARGS="--ten"             and ten million kernels
    make bench-rows ARGS="--no-across"       without the 512 ranks
    make bench-rows ARGS="trace.sqlite"      any trace instead

Every measurement is a fresh process, the median of several, with the files in the page cache. Absolute times are the
machine's; the ratios are the software's. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import across
import bench_stats
import measure
import traces
from rows import KINETO_ROWS, NSYS_ROWS, Context, Section, Skipped

ONE, TEN = "nsys, 1 M kernels", "nsys, 10 M kernels"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="*", type=Path, help="traces to measure instead of the simulated ones")
    parser.add_argument(
        "--ten", action="store_true", help="ten million kernels too (takes some minutes, and 2 GB of disk)"
    )
    parser.add_argument("--no-across", action="store_true", help="leave out the questions across many ranks")
    parser.add_argument("--runs", type=int, default=3, help="runs per measurement (default 3)")
    parser.add_argument("--only", default="", help="only rows whose name contains this (the base is always measured)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    args = parser.parse_args()
    figures: list[dict[str, Any]] = []
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    try:
        for section in _sections(args.trace, args.ten):
            figures += _measure(section, args.runs, args.only)
    finally:
        shutil.rmtree(traces.HOME / "cache", ignore_errors=True)
    _print_growth(figures)
    if not (args.trace or args.no_across or args.only):
        figures += across.report([across.FEW, across.MANY])
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


def _sections(given: list[Path], ten: bool) -> Iterator[Section]:
    if given:
        for path in given:
            is_sqlite = path.is_file() and path.open("rb").read(6) == b"SQLite"
            yield Section(str(path), lambda path=path: path, NSYS_ROWS if is_sqlite else KINETO_ROWS)  # type: ignore[misc]
        return
    yield Section(ONE, traces.million, NSYS_ROWS)
    if ten:
        yield Section(TEN, traces.ten_million, NSYS_ROWS[:3], runs=1)
    yield Section("nsys's six reports, 1 M kernels", traces.million, bench_stats.rows())
    yield Section("torch.profiler, 1 M events", traces.kineto, KINETO_ROWS)


def _measure(section: Section, runs: int, only: str) -> list[dict[str, Any]]:
    path = section.trace().resolve()
    measure.warm_page_cache(path)
    size = sum(f.stat().st_size for f in path.rglob("*")) if path.is_dir() else path.stat().st_size
    print(f"\n{section.title} ({size / 1e6:.0f} MB{_counts(path)})")
    print(f"  {'':46} {'seconds':>8} {'ratio':>7} {'wanted':>7} {'CPU s':>7} {'ratio':>7} {'peak MB':>8} {'spread':>7}")
    cache = traces.HOME / "cache"
    cache.parent.mkdir(exist_ok=True)
    context = Context(path, min(runs, section.runs) if section.runs < 3 else runs, cache)
    found: list[dict[str, Any]] = []
    base: measure.Sample | None = None
    for row in section.rows:
        if base is not None and only not in row.name:
            continue
        try:
            sample = row.run(context)
        except (Skipped, measure.Failed) as error:
            print(f"  {row.name:46} {'skipped' if isinstance(error, Skipped) else 'failed'}: {error}")
            continue
        base = base or sample
        peak = f"{sample.peak_mb:8.0f}" if sample.peak_mb else " " * 8
        spread = f"{100 * sample.spread:6.0f}%" if sample.runs > 1 else ""
        ratio, cpu_ratio = sample.seconds / base.seconds, sample.cpu_seconds / base.cpu_seconds
        print(
            f"  {row.name:46} {sample.seconds:8.3f} {ratio:6.2f}x {row.wanted:>7} "
            f"{sample.cpu_seconds:7.3f} {cpu_ratio:6.2f}x {peak} {spread:>7}"
        )
        sys.stdout.flush()
        found.append(
            {
                "section": section.title,
                "row": row.name,
                "seconds": sample.seconds,
                "ratio": ratio,
                "cpu_seconds": sample.cpu_seconds,
                "cpu_ratio": cpu_ratio,
                "peak_mb": sample.peak_mb,
                "runs": sample.runs,
                "spread": sample.spread,
            }
        )
    return found


def _counts(path: Path) -> str:
    import sqlite3

    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            named = (("kernels", "CUPTI_ACTIVITY_KIND_KERNEL"), ("calls", "CUPTI_ACTIVITY_KIND_RUNTIME"))
            counts = [(what, db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for what, table in named]
    except sqlite3.Error:
        return ""
    return "".join(f", {n:,} {what}" for what, n in counts)


def _print_growth(figures: list[dict[str, Any]]) -> None:
    """What ten times the events cost, where both were measured."""
    seconds = {(f["section"], f["row"]): f["seconds"] for f in figures}
    grown = [(f["row"], f["seconds"] / seconds[ONE, f["row"]]) for f in figures if f["section"] == TEN]
    if grown:
        print("\nten times the events cost (wanted: ≤ 11)")
        for row, ratio in grown:
            print(f"  {row:46} {'':8} {ratio:6.2f}x")


if __name__ == "__main__":
    sys.exit(main())
