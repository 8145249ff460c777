"""What a view shows of some rows, as few bytes: columns of the smallest integers that hold them, compressed.

The answer is the length of a JSON head (4 bytes), the head, and the columns (`report/pack.py`), which the page reads as
typed arrays. Starts are differences within a row, from the base that the head has.
"""

from __future__ import annotations

import struct

import msgspec
import numpy as np

from stepscope.intervals.arrays import Mask
from stepscope.report.pack import Columns
from stepscope.web.scene import Scene
from stepscope.web.track import Marks

#: Rows of one block, and marks of one answer: a view has some blocks, and stays below 500 kB on the wire.
MOST_ROWS, MOST_MARKS, MOST_PIXELS = 32, 24_000, 4_096
#: A text longer than this is cut: details have all of it.
_MOST_TEXT = 96
_FIELDS = ("kind", "name", "n", "busy", "row", "match")


def block(scene: Scene, rows: list[int], lo: int, hi: int, pixels: int, matches: Mask | None = None) -> bytes:
    """Rows of the scene between two drawn moments, on so many pixels."""
    pixels = min(pixels, MOST_PIXELS)
    marks = [scene.tracks[row].view(lo, hi, pixels, matches) for row in rows]
    while sum(len(m.start) for m in marks) > MOST_MARKS and pixels > 1:
        pixels //= 2
        marks = [scene.tracks[row].view(lo, hi, pixels, matches) for row in rows]
    columns = Columns()
    places = {
        "start": columns.add(np.concatenate([np.diff(m.start, prepend=m.start[:1]) for m in marks])),
        "dur": columns.add(np.concatenate([m.end - m.start for m in marks])),
        **{name: columns.add(np.concatenate([getattr(m, name) for m in marks])) for name in _FIELDS},
    }
    head = {
        "from": lo,
        "to": hi,
        "rows": [[row, len(m.start), _first(m)] for row, m in zip(rows, marks, strict=True)],
        "columns": places,
        "texts": _texts(scene, marks),
    }
    text = msgspec.json.encode(head)
    text += b" " * (-(len(text) + 4) % 8)  # typed arrays begin at multiples of 8
    return struct.pack("<I", len(text)) + text + columns.bytes()


def _first(marks: Marks) -> int:
    return int(marks.start[0]) if len(marks.start) else 0


def _texts(scene: Scene, marks: list[Marks]) -> dict[str, str]:
    """Short names of what is sent as itself."""
    named = [m.name[m.busy == 0] for m in marks]
    used = np.unique(np.concatenate(named)) if named else np.empty(0, np.int64)
    return {str(i): scene.short[i][:_MOST_TEXT] for i in used.tolist()}
