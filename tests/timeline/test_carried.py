"""What a report carries of a scene: few marks, none of them lost, and each with what launched it."""

from __future__ import annotations

import base64
import gzip
from itertools import accumulate
from typing import Any

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from stepscope.derive.comm.common_clock import Line
from stepscope.timeline.block import carried
from stepscope.timeline.rows import Making, Ops
from stepscope.timeline.scene import Scene, arranged

STREAMS = pl.DataFrame({"rank": [0], "stream": [7], "kind": ["compute"], "purpose": [None]})
#: Gap before, length, stream, role, name.
ops = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 60), st.integers(7, 9), st.integers(0, 2), st.integers(0, 3)),
    min_size=1,
    max_size=300,
)


def scene_of(rows: list[tuple[int, ...]]) -> Scene:
    making = Making({0: Line(0, 0)}, STREAMS)
    gap, length, stream, role, name = (np.array(c, np.int64) for c in zip(*rows, strict=True))
    end = np.cumsum(gap + length)
    texts = making.texts.ids(pl.Series(["", "a", "b", "c"]))
    families = making.families.ids(("compute", "communication", "copies"))
    launched = {"range": texts[name], "stage": texts[name], "outside": name % 2}
    return arranged(
        making, making.of_ops(0, Ops(end - length, end, stream, role, families[role], texts[name], launched))
    )


def decoded(scene: Scene, **most: int) -> tuple[list[dict[str, np.ndarray]], list[str]]:
    """The marks of every lane."""
    about, text, merged = carried(scene, most)  # type: ignore[arg-type]
    raw = gzip.decompress(base64.b64decode(text))
    places: dict[str, Any] = dict(about["columns"])
    columns = {
        name: np.frombuffer(raw, f"<{c['type']}", c["n"], c["at"]).astype(np.int64) for name, c in places.items()
    }
    ends = list(accumulate((n for _, n, _ in about["rows"]), initial=0))
    lanes = []
    for (lane, n, base), first in zip(about["rows"], ends, strict=False):
        assert lane == len(lanes)
        of = {name: values[first : first + n] for name, values in columns.items()}
        lanes.append(of | {"start": base + np.cumsum(of["start"])})
    return lanes, merged


@given(ops, st.integers(1, 400))
def test_no_op_is_lost(rows, most):
    scene = scene_of(rows)
    lanes, merged = decoded(scene, streams=most)
    least = 2 * 16 * len(lanes)  # of so few pixels, a row has what it has
    assert sum(len(lane["start"]) for lane in lanes) <= max(most, least)
    assert bool(merged) == any((lane["busy"] > 0).any() for lane in lanes)
    assert len(rows) > most or not merged
    for track, lane in zip(scene.tracks, lanes, strict=True):
        bucket = lane["busy"] > 0
        alone = set(
            zip(*(lane[c][~bucket].tolist() for c in ("start", "dur", "name", "range", "outside")), strict=True)
        )
        boxes = list(zip(lane["start"][bucket], (lane["start"] + lane["dur"])[bucket], strict=True))
        for start, end, name, range_, out in zip(
            track.start, track.end, track.name, track.carried["range"], track.carried["outside"], strict=True
        ):
            inside = any(lo <= start < hi for lo, hi in boxes)
            assert inside or (start, end - start, name, range_, out) in alone
        assert not lane["range"][bucket].any() and not lane["row"].any()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 400)), min_size=1, max_size=300), st.integers(1, 200))
def test_parts_keep_their_time(rows, most):
    names = ("compute", "comm_exposed", "copy_exposed", "idle")
    end = np.cumsum([length for _, length in rows])
    start = end - [length for _, length in rows]
    frame = pl.DataFrame({"start_ns": start, "end_ns": end, "part": [names[kind] for kind, _ in rows]})
    making = Making({0: Line(0, 0)}, STREAMS)
    scene = arranged(making, making.of_parts(0, frame))
    (lane,), _ = decoded(scene, parts=most)
    sums = [int(lane["dur"][lane["kind"] == kind].sum()) for kind in range(7, 11)]
    assert sums == [sum(length for of, length in rows if of == kind) for kind in range(4)]
    ends = lane["start"] + lane["dur"]
    assert lane["start"].tolist() == [0, *ends[:-1].tolist()] and ends[-1] == end[-1]  # no gap, no overlap
