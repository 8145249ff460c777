"""What links can do, as nccl-tests or `capture nccl` measured it: bus bandwidth by operation and size of message.

Columns are those of the header that stands above the rows: versions differ in which they have. Of in-place and
out-of-place the faster counts. Which operation it was is in a line of the text (`all_reduce_perf`), else in the name of
the file. Between two sizes the ceiling lies on a line over their logarithms; outside, at the nearest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.comm.kinds import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, REDUCE_SCATTER, SEND_RECV
from stepscope.errors import BadInput
from stepscope.intervals.arrays import F64

#: What nccl-tests calls the operations.
_PROGRAMS = {
    "all_reduce": ALL_REDUCE,
    "all_gather": ALL_GATHER,
    "reduce_scatter": REDUCE_SCATTER,
    "alltoall": ALL_TO_ALL,
    "sendrecv": SEND_RECV,
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
_PROGRAM = re.compile(rf"\b({'|'.join(sorted(_PROGRAMS, key=len, reverse=True))})_perf")
_HINT = (
    "give what `stepscope capture nccl` wrote, or a program of nccl-tests printed, as in "
    "`all_reduce_perf -b 1M -e 1G -f 2 > all_reduce_perf.txt`"
)
#: What `capture nccl` writes first, and where in the folder of a capture.
_SWEEP = re.compile(r"^# stepscope capture nccl: ([^:,]+)")
_SWEPT = "nccl"
#: No line of nccl-tests is longer; what is, is another file.
_LONGEST = 4096


class Ceiling(Struct, frozen=True):
    """Bus bandwidth that was measured, by operation: sizes in bytes, ascending, and 10⁹ bytes per second of each."""

    of: dict[str, tuple[F64, F64]]
    #: who measured it, as a sentence says it
    by: str = "nccl-tests"

    def at(self, kind: str, size: F64) -> F64 | None:
        """The ceiling of messages of some sizes; null where the operation was not measured."""
        if kind not in self.of:
            return None
        sizes, busbw = self.of[kind]
        return np.interp(np.log2(np.maximum(size, 1.0)), np.log2(sizes), busbw)

    def column(self, table: pl.DataFrame) -> pl.Series:
        """The ceiling of each row of a table with `op` and `bytes`; null where one is not known."""
        ceiling = np.full(table.height, np.nan)
        size = table["bytes"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
        for kind in self.of:
            rows = (table["op"] == kind).fill_null(False).to_numpy() & (size > 0)
            if (values := self.at(kind, size[rows])) is not None:
                ceiling[rows] = values
        return pl.Series("ceiling_gbps", ceiling).fill_nan(None)


def read_ceiling(path: Path) -> Ceiling:
    """The ceiling of a file, or of all text files of a folder: one for each operation."""
    folder = path / _SWEPT if (path / _SWEPT).is_dir() else path
    files = sorted(p for p in folder.iterdir() if p.is_file()) if folder.is_dir() else [path]
    measured: dict[str, dict[int, float]] = {}
    by: set[str] = set()
    for file in files:
        try:
            with file.open("r", encoding="utf-8", errors="replace") as lines:
                _read(file, lines, measured, by)
        except OSError as error:
            raise BadInput(f"{file}: {error.strerror or error}", _HINT) from None
    if not measured:
        raise BadInput(f"{path}: has no row of nccl-tests", _HINT)
    tables = {kind: sorted(rows.items()) for kind, rows in measured.items()}
    return Ceiling(
        {kind: (np.array(rows, np.float64)[:, 0], np.array(rows, np.float64)[:, 1]) for kind, rows in tables.items()},
        f"capture nccl ({' and '.join(sorted(by))})" if by else "nccl-tests",
    )


def _read(file: Path, lines: Iterable[str], measured: dict[str, dict[int, float]], by: set[str]) -> None:
    named = _PROGRAM.search(file.name) or _PROGRAM.search(f"{file.stem}_perf")
    kind = _PROGRAMS[named[1]] if named else None
    columns: list[str] = []
    for line in _short(lines):
        if match := _SWEEP.match(line):
            by.add(match[1])
        if match := _PROGRAM.search(line):
            kind = _PROGRAMS[match[1]]
        words = line.replace("#wrong", "wrong").lstrip("# ").split()
        if words[:2] == ["size", "count"]:
            columns = words
        elif not line.lstrip().startswith("#") and (row := _row(words, columns)) is not None:
            if kind is None:
                raise BadInput(f"{file}: does not say which operation was measured", f"{_HINT}: by the file's name")
            size, busbw = row
            at = measured.setdefault(kind, {})
            at[size] = max(at.get(size, 0.0), busbw)


def _short(lines: Iterable[str]) -> Iterator[str]:
    return (line for line in lines if len(line) <= _LONGEST)


def _row(words: list[str], columns: list[str]) -> tuple[int, float] | None:
    """Size and the faster bus bandwidth of a row; null for any other line."""
    if not columns or len(words) != len(columns):
        return None
    try:
        size = int(words[0])
        rates = [float(w) for w, column in zip(words, columns, strict=True) if column == "busbw"]
    except ValueError:
        return None
    best = max(rates, default=0.0)
    return (size, best) if size > 0 and 0 < best < float("inf") else None
