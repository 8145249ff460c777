"""Files of one job ran at the same time, or talked to each other: others are other runs, and refused as one profile.

Ranks of two runs side by side would be a job that never was, with a straggler that does not exist.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from stepscope import progress
from stepscope.errors import BadInput
from stepscope.model.source import Source
from stepscope.model.units import file_names

#: Clocks of hosts that nobody sets may differ by so much: captures that lie closer may be of one time.
_CLOCKS_NS = 60 * 10**9
#: Runs that a refusal lists.
_MOST_LISTED = 4


class _Capture(NamedTuple):
    first: int
    last: int
    source: Source
    host: str | None


def refuse_other_runs(sources: Sequence[Source]) -> None:
    """`BadInput` with the list of runs where the files are of several."""
    captured = []
    timeless = []
    for source in progress.each("file", sources):
        with progress.within():  # a file of JSON is read whole to know when it was recorded
            if source.info.recorded_ns is not None:
                captured.append(_capture(source))
            else:
                timeless.append(source)
    _refuse_timeless_copies(timeless)
    if len(captured) < 2:
        return
    _refuse_copies([c for c in captured if c is not None])
    runs = _joined(_by_time([c for c in captured if c is not None]))
    if len(runs) < 2:
        return
    names = file_names([str(run[0].source.path) for run in runs])
    listed = "; ".join(f"{n}. {_named(runs[n - 1], name)}" for n, name in enumerate(names[:_MOST_LISTED], 1))
    more = f"; and {len(runs) - _MOST_LISTED} more" if len(runs) > _MOST_LISTED else ""
    one, other = (" ".join(shlex.quote(str(path)) for path in _paths(run)) for run in runs[:2])
    raise BadInput(
        f"these files are of {len(runs)} runs, at different times and without a common communicator: {listed}{more}",
        f"ask about one, `stepscope diagnose {one}`, or compare two, `stepscope compare {one} --to {other}`",
    )


def _refuse_copies(captures: list[_Capture]) -> None:
    """The same capture under two names would be ranks that agree suspiciously well."""
    seen: dict[tuple[object, ...], Path] = {}
    for first, last, source, _ in captures:
        who = source.processes().select("pid", "host", "rank").rows()
        _refuse_same(seen.setdefault((first, last, _profiler(source), *who), source.path), source.path)


def _refuse_timeless_copies(sources: list[Source]) -> None:
    """Likewise of files that do not say when they were recorded: `a.json` beside `a.json.gz`.

    Ops are compared only where the processes are the same ones on the same host.
    """
    by_processes: dict[tuple[object, ...], list[Source]] = {}
    for source in sources:
        if "ops" in source.tables():
            who = source.processes().select("pid", "host", "rank").rows()
            by_processes.setdefault((_profiler(source), *who), []).append(source)
    for alike in by_processes.values():
        seen: dict[tuple[object, ...], Path] = {}
        for source in alike if len(alike) > 1 else ():
            ops = source.read("ops").frame.select("start_ns", "end_ns", "stream")
            _refuse_same(seen.setdefault((ops.height, *ops.sum().row(0)), source.path), source.path)


def _profiler(source: Source) -> str:
    """Who recorded it: nsys writes a report as SQLite and as a folder of parquet."""
    return source.info.format.partition("-")[0]


def _refuse_same(first: Path, path: Path) -> None:
    if first is not path:
        raise BadInput(f"{first} and {path} hold the same capture", "give each capture once")


def _capture(source: Source) -> _Capture | None:
    if source.info.recorded_ns is None:
        return None
    hosts = source.processes()["host"].unique().to_list()
    return _Capture(*source.info.recorded_ns, source, hosts[0] if len(hosts) == 1 else None)


def _by_time(captures: list[_Capture]) -> list[list[_Capture]]:
    """Captures in groups that ran at the same time, as far as clocks tell."""
    groups: list[list[_Capture]] = []
    until: _Capture | None = None
    for capture in sorted(captures, key=lambda c: (c.first, c.last)):
        one_clock = until is not None and until.host is not None and until.host == capture.host
        if until is None or capture.first > until.last + (0 if one_clock else _CLOCKS_NS):
            groups.append([])
            until = capture
        groups[-1].append(capture)
        until = max(until, capture, key=lambda c: c.last)
    return groups


def _joined(groups: list[list[_Capture]]) -> list[list[_Capture]]:
    """Groups that share a communicator are one run. Their calls are read only where there are several groups."""
    if len(groups) < 2:
        return groups
    runs: list[tuple[set[str], list[_Capture]]] = []
    for group in groups:
        used = set().union(*(_communicators(c.source) for c in group))
        same = [run for run in runs if run[0] & used]
        for run in same:
            runs.remove(run)
        runs.append((used.union(*(r[0] for r in same)), [*(c for r in same for c in r[1]), *group]))
    return [run for _, run in runs]


def _communicators(source: Source) -> set[str]:
    if "comms" not in source.tables():
        return set()
    chunk = source.read("comms")
    return set(chunk.names.gather(chunk.frame["communicator"].drop_nulls().unique()).drop_nulls().to_list())


def _named(run: list[_Capture], name: str | None) -> str:
    """`a.sqlite and 3 more (2026-11-16 16:20:01 to 16:20:09 UTC)`."""
    first, last = (_utc(ns) for ns in (min(c.first for c in run), max(c.last for c in run)))
    more = f" and {len(run) - 1} more" if len(run) > 1 else ""
    until = last[11:] if last[:10] == first[:10] else last
    return f"{name}{more} ({first} to {until} UTC)"


def _utc(ns: int) -> str:
    try:
        return datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{ns // 10**9} s"


def _paths(run: list[_Capture]) -> list[Path]:
    paths = [c.source.path for c in run]
    return paths if len(paths) <= 2 else [*paths[:1], Path("…")]
