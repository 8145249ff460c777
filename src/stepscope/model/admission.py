"""Which rows of a table the door admits: its rules on rows (`model.door` lists them), one function each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope.intervals.arrays import I64, Mask
from stepscope.model.columns import Table

#: Sums and differences of two such times fit 64 bits.
_FARTHEST = 1 << 62
_DAY_NS = 86_400 * 10**9
_YEAR_NS = 366 * _DAY_NS
#: A capture goes on a little beyond the length that it states: what covers all of it is longer.
_SLACK_NS = 10**9
#: `records` are of all processes, also from before the capture: a wait may well be longer than that.
_UNBOUND = ("records",)
#: What makes an event the same as one of the same times. Without a correlation nothing tells two apart.
_IDENTITY = {
    "ops": ("kind", "name", "device", "stream", "correlation"),
    "calls": ("tid", "name", "raw_name", "correlation"),
}


def flaws(frame: pl.DataFrame, table: Table, processes: int, capture_ns: int | None) -> Iterator[tuple[Mask, str]]:
    """Rows that cannot be, and why not. A row may come more than once."""
    proc = frame["proc"]
    if frame.height and (proc.null_count() or proc.min() < 0 or proc.max() >= processes):  # type: ignore[operator]
        yield ~proc.is_between(0, processes - 1).fill_null(False).to_numpy(), "of no known process"
    for column in table.delivered(frame.columns):
        series = frame[column.name]
        if series.null_count() and column.required:
            what = "a time" if column.name in ("start_ns", "end_ns") else column.name
            yield series.is_null().to_numpy(), f"without {what}"
    if "start_ns" in frame.columns and frame.height:
        start = _times(frame["start_ns"])
        end = _times(frame["end_ns"]) if "end_ns" in frame.columns else start
        limit = None if table.name in _UNBOUND else capture_ns
        yield from misplaced(start, end, limit)


def misplaced(start: I64, end: I64, capture_ns: int | None) -> Iterator[tuple[Mask, str]]:
    """Rows whose times cannot be."""
    far = None
    if min(start.min(), end.min()) <= -_FARTHEST or max(start.max(), end.max()) >= _FARTHEST:
        far = (start <= -_FARTHEST) | (start >= _FARTHEST) | (end <= -_FARTHEST) | (end >= _FARTHEST)
        start, end = np.where(far, 0, start), np.where(far, 0, end)
    near = start if far is None else start[~far]
    if len(near) and near.max() - near.min() > _YEAR_NS:
        away = np.abs(start - np.int64(np.median(near))) > _YEAR_NS
        far = away if far is None else far | away
    if far is not None:
        yield far, "at an impossible time (over a year from the others)"
    length = end - start
    if length.min() < 0:
        yield length < 0, "whose end is before the start"
    most = min(2 * capture_ns + _SLACK_NS, _DAY_NS) if capture_ns else _DAY_NS
    if length.max() > most:
        # A stated length that most events contradict is itself what is wrong.
        longer = length > most
        most = most if np.count_nonzero(longer) * 2 <= len(longer) else _DAY_NS
        yield length > most, "whose length is more than the capture's"


def repeated(frame: pl.DataFrame, table: str) -> Mask | None:
    """Rows that repeat the one before them (rows are in order), None where there are none.

    A launch has an id of its own, so an op or a call that is the same in all is the same. Ops of one graph share the id
    of its launch, and parallel nodes can be alike in all: those of an id are repeated only where there are no others.
    """
    if table not in _IDENTITY or frame.height < 2:
        return None
    same = np.ones(frame.height - 1, dtype=bool)
    for column in ("start_ns", "end_ns", "proc"):
        values = frame[column].to_numpy()
        same &= values[1:] == values[:-1]
        if not same.any():
            return None
    beside = frame[np.flatnonzero(np.r_[False, same] | np.r_[same, False])].drop_nulls("correlation")
    launch = ["proc", "correlation"]
    ops = frame.select(*launch, "start_ns", "end_ns", *_IDENTITY[table][:-1]).with_row_index("at")
    ops = ops.join(beside.select(launch).unique(), on=launch, how="semi")
    identity = pl.struct("start_ns", "end_ns", *_IDENTITY[table][:-1])
    sole = identity.n_unique().over(launch) == 1 if table == "ops" else pl.lit(True)
    again = ops.filter(sole & ~pl.struct(pl.exclude("at")).is_first_distinct())["at"].to_numpy()
    if not len(again):
        return None
    mask = np.zeros(frame.height, dtype=bool)
    mask[again] = True
    return mask


def _times(column: pl.Series) -> I64:
    """As an array; rows without a time are told apart already."""
    return (column.fill_null(0) if column.null_count() else column).to_numpy()
