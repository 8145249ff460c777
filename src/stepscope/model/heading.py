"""What stands above a table: which files, which ranks, which window. Few lines, however many ranks there are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from stepscope.model.range_names import short_range
from stepscope.model.ranks import some_ranks
from stepscope.model.result import Result, WindowRow
from stepscope.model.units import duration, instant

#: More different windows than this are summed up.
_MOST_LINES = 4
#: Labels of chunks and comparisons name two ends: they get more room than a name within a sentence.
_MOST_LABEL = 120


def source_line(result: Result) -> str:
    """`node0.sqlite (nsys-sqlite 2025.3.1), 4 ranks`; `2 of 128 ranks` where some are missing."""
    by_format: dict[str, list[str]] = {}
    for s in result.sources:
        by_format.setdefault(" ".join(filter(None, (s.format, s.tool))), []).append(PurePath(s.file).name)
    files = [f"{f[0] if len(f) == 1 else f'{len(f)} files'} ({kind})" for kind, f in by_format.items()]
    of = f" of {result.world}" if result.world is not None and result.world > result.ranks else ""
    ranks = [f"{result.ranks}{of} rank{'s' * (result.ranks != 1 or bool(of))}"] if result.ranks else []
    return ", ".join([*files, *ranks])


def window_lines(result: Result) -> list[str]:
    """The windows that the figures rest on: ranks with the same one share a line."""
    if not result.window or {"label", "index", "gpu_start_ns"} <= set(result.rows.columns):
        return []  # none, or the rows are the windows
    groups: dict[tuple[Any, ...], list[WindowRow]] = {}
    for w in result.window:
        groups.setdefault((w.get("label"), w.get("index"), w.get("count")), []).append(w)
    if len(groups) <= _MOST_LINES:
        return [_group_line(members, result.begins) for members in groups.values()]
    ranks = {w.get("rank") for w in result.window}
    return [
        f"{len(result.window)} windows on {_ranks(ranks)}: {_label(result.window[0])} … "
        f"{_label(result.window[-1])}{_gpu(result.window, result.begins)}"
    ]


def numbers(text: str) -> set[int]:
    """What `ranks_text` wrote; empty for other texts."""
    if not re.fullmatch(r"\d+(-\d+)?(,\s*\d+(-\d+)?)*", text):
        return set()
    ends = (part.split("-") for part in text.split(","))
    return {n for pair in ends for n in range(int(pair[0]), int(pair[-1]) + 1)}


def _group_line(members: list[WindowRow], begins: dict[int, int]) -> str:
    label, index, count = _label(members[0]), members[0].get("index"), members[0].get("count")
    which = f" (#{index} of {count})" if count is not None and count > 1 else ""
    return f"{label}{which} on {_ranks(w.get('rank') for w in members)}{_gpu(members, begins)}"


def _label(window: WindowRow) -> str:
    return short_range(str(window.get("label")), _MOST_LABEL)


def _ranks(ranks: Iterable[int | None]) -> str:
    return some_ranks(r for r in ranks if r is not None)


def _gpu(members: list[WindowRow], begins: dict[int, int]) -> str:
    """How long the windows are on the GPU; of a single one, where it lies."""
    all_of = [(w.get("gpu_start_ns"), w.get("gpu_end_ns"), w.get("rank")) for w in members]
    spans = [(a, b, rank) for a, b, rank in all_of if a is not None and b is not None]
    if not spans:
        return ", no GPU work"
    lengths = sorted(b - a for a, b, _ in spans)
    short, long = duration(lengths[0]), duration(lengths[-1])
    if len(spans) == 1:
        start, _, rank = spans[0]
        return f": {short} of GPU time from {instant(start - begins[rank]) if rank in begins else '@' + instant(start)}"
    return f": {short} of GPU time" if short == long else f": {short} to {long} of GPU time each"
