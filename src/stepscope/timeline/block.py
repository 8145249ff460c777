"""Marks of rows as few bytes: columns of the smallest integers that hold them (`pack`), starts as differences in a row.

A server sends what a view shows of some rows; a report carries so much of all of them that it stays a page.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from stepscope.intervals.arrays import I64, Mask
from stepscope.model.units import about
from stepscope.model.visible import visible
from stepscope.timeline import messages
from stepscope.timeline.counters import CounterTrack
from stepscope.timeline.messages import Group
from stepscope.timeline.pack import Columns
from stepscope.timeline.rows import Row
from stepscope.timeline.scene import Scene
from stepscope.timeline.track import PER_PIXEL, Marks

#: Rows of one answer, and marks of it: a view has some blocks, and stays below 500 kB on the wire.
MOST_ROWS, MOST_MARKS, MOST_PIXELS = 32, 24_000, 4_096
#: A text longer than this is cut: details have all of it.
_MOST_TEXT = 96
_FIELDS = ("kind", "name", "n", "busy", "row")
#: What a report says of an op: numbers of texts, and a flag.
CARRIED = ("range", "stage", "outside")
#: What a group of rows is called where some of it is merged.
_CALLED: dict[Group, str] = {"streams": "ops", "host": "host ranges and calls"}


def block(scene: Scene, rows: list[int], lo: int, hi: int, pixels: int, matches: Mask | None = None) -> bytes:
    """Rows of the scene between two drawn moments, on so many pixels.

    The length of a JSON head in four bytes, the head, and the columns.
    """
    pixels = min(pixels, MOST_PIXELS)
    marks = [scene.tracks[row].view(lo, hi, pixels, matches) for row in rows]
    while sum(len(m.start) for m in marks) > MOST_MARKS and pixels > 1:
        pixels //= 2
        marks = [scene.tracks[row].view(lo, hi, pixels, matches) for row in rows]
    columns = Columns()
    match = [m.match for m in marks]
    head = {"from": lo, "to": hi, **_packed(columns, rows, marks, {"match": match}), "texts": _texts(scene, marks)}
    text = msgspec.json.encode(head)
    text += b" " * (-(len(text) + 4) % 8)  # typed arrays begin at multiples of 8
    return struct.pack("<I", len(text)) + text + columns.bytes()


def carried(scene: Scene, most: Mapping[Group, int]) -> tuple[messages.MarksData, str, list[str]]:
    """All rows, with about so many marks of each group: their places, the block as text, and what was merged, in words.

    A place within the row goes without saying: the page counts. Counters keep theirs, which is their least value.
    """
    marks: list[Marks | None] = [None] * len(scene.tracks)
    merged = []
    for group in dict.fromkeys(track.group for track in scene.tracks):
        rows = [i for i, track in enumerate(scene.tracks) if track.group == group]
        views, notes = _within([scene.tracks[i] for i in rows], most[group], scene.end, group)
        merged += [notes] if notes else []
        for i, view in zip(rows, views, strict=True):
            marks[i] = view
    kept = cast("list[Marks]", marks)
    more = {name: [_of_marks(track, m, name) for track, m in zip(scene.tracks, kept, strict=True)] for name in CARRIED}
    columns = Columns()
    placeless = [
        m if isinstance(track, CounterTrack) else replace(m, row=np.zeros(len(m.start), np.int64))
        for track, m in zip(scene.tracks, kept, strict=True)
    ]
    places = _packed(columns, range(len(kept)), placeless, more)
    return places, columns.text(), merged


def _within(tracks: list[Row], most: int, end: int, group: Group) -> tuple[list[Marks], str]:
    """Views of all there is, with at most so many marks or a few a row; what to say of those that were merged."""
    if group == "counters":  # each has as many as a screen
        return [track.view(-1, end + 1, most) for track in tracks], ""
    total = sum(len(track.start) for track in tracks)
    pixels = total if total <= most else max(most // PER_PIXEL, 1)
    while True:
        views = [track.view(-1, end + 1, pixels, overview=True) for track in tracks]
        if sum(len(view.start) for view in views) <= most or pixels <= 1:
            break
        pixels //= 2
    buckets = [(view.busy > 0, view) for view in views]
    drawn = sum(int(are.sum()) for are, _ in buckets)
    if not drawn:
        return views, ""
    if group == "parts":
        return views, f"{total:,} parts of ranks' time are drawn as {drawn:,} marks, with their shares as they are"
    alone = sum(int((~are).sum()) for are, _ in buckets)
    longest = max(int((view.end - view.start)[are].max()) for are, view in buckets if are.any())
    what = _CALLED.get(group, group)
    short = f"{total - alone:,} of {total:,} {what}, each shorter than {about(longest)}"
    return views, f"{short}, are drawn as {drawn:,} merged marks"


def _of_marks(track: Row, marks: Marks, name: str) -> I64:
    """What is carried of the track's marks; nothing of buckets."""
    none = np.zeros(len(marks.start), np.int64)
    if isinstance(track, CounterTrack) or name not in track.carried:
        return none
    return np.where(marks.busy > 0, none, track.carried[name][marks.row])


def _packed(
    columns: Columns, rows: Sequence[int], marks: list[Marks], more: Mapping[str, list[npt.NDArray[Any]]]
) -> messages.MarksData:
    """Adds the marks to the columns; where they are."""
    of = {
        "start": [np.diff(m.start, prepend=m.start[:1]) for m in marks],
        "dur": [m.end - m.start for m in marks],
        **{name: [getattr(m, name) for m in marks] for name in _FIELDS},
        **more,
    }
    places = {name: columns.add(np.concatenate(values)) for name, values in of.items()}
    return {
        "rows": [(row, len(m.start), _first(m)) for row, m in zip(rows, marks, strict=True)],
        "columns": cast("messages.Columns", places),
    }


def _first(marks: Marks) -> int:
    return int(marks.start[0]) if len(marks.start) else 0


def _texts(scene: Scene, marks: list[Marks]) -> dict[str, str]:
    """Short names of what is sent as itself."""
    named = [m.name[m.busy == 0] for m in marks]
    used = np.unique(np.concatenate(named)) if named else np.empty(0, np.int64)
    return {str(i): visible(scene.short[i][:_MOST_TEXT]) for i in used.tolist()}
