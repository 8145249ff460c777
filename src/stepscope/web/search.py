"""What a search finds in a whole profile: how many marks, how long they take, and where each is."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.intervals.arrays import I64, Mask
from stepscope.timeline.track import Track
from stepscope.web.functions import GROUP as FUNCTIONS
from stepscope.web.messages import MatchData, SearchName
from stepscope.web.scene import Served

#: Names that are listed with their figures.
MOST_NAMES = 20
#: What is looked through: ops and the ranges that launched them, as in the report, and what the host ran.
_GROUPS = ("streams", "ranges", FUNCTIONS)


@dataclass(frozen=True)
class Found:
    """Which texts match, and every mark that has one of them, by time."""

    texts: Mask
    start: I64
    lane: I64
    row: I64
    names: list[SearchName]
    ops: int
    total_ns: int

    def at(self, scene: Served, k: int) -> MatchData:
        """The k-th mark, counted from the first and round again."""
        k %= len(self.start)
        lane, row = int(self.lane[k]), int(self.row[k])
        track = scene.tracks[lane]
        assert isinstance(track, Track)
        start, end = int(track.start[row]), int(track.end[row])
        return {"k": k, "lane": lane, "row": row, "rank": track.rank, "start": start, "end": end}


def texts_matching(scene: Served, wanted: str) -> Mask:
    """By text: whether it has `wanted` in it, or matches what stands between slashes; capitals do not matter.

    Polars' regular expressions take time in proportion to the text, whatever the pattern is.
    """
    between = re.fullmatch(r"/(.+)/", wanted)
    pattern = f"(?i)(?:{between[1]})" if between else f"(?i){re.escape(wanted)}"
    try:
        matching: Mask = scene.texts.str.contains(pattern).to_numpy()
    except pl.exceptions.ComputeError as error:
        raise ValueError("not a regular expression: " + str(error).strip().splitlines()[-1].strip()) from None
    return matching


def search(scene: Served, wanted: str) -> Found:
    """Everything that matches."""
    texts = texts_matching(scene, wanted)
    starts, lanes, rows = [], [], []
    n, total, longest = (np.zeros(len(texts), np.int64) for _ in range(3))
    ops, total_ns = 0, 0
    for lane, track in enumerate(scene.tracks):
        if not isinstance(track, Track) or track.group not in _GROUPS:
            continue
        mine = np.flatnonzero(texts[track.name])
        starts.append(track.start[mine])
        rows.append(mine)
        lanes.append(np.full(len(mine), lane, np.int64))
        length, name = (track.end - track.start)[mine], track.name[mine]
        n += np.bincount(name, minlength=len(n))
        np.add.at(total, name, length)
        np.maximum.at(longest, name, length)
        if track.group == "streams":
            ops += len(mine)
            total_ns += int(length.sum())
    start, lane_of, row = (np.concatenate([np.empty(0, np.int64), *x]) for x in (starts, lanes, rows))
    order = np.argsort(start, kind="stable")
    most = [i for i in np.lexsort((-n, -total))[:MOST_NAMES].tolist() if n[i]]
    names: list[SearchName] = [
        {"name": scene.texts[i], "n": int(n[i]), "total_ns": int(total[i]), "longest_ns": int(longest[i])} for i in most
    ]
    return Found(texts, start[order], lane_of[order], row[order], names, ops, total_ns)
