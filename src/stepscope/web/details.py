"""What is known of one mark, and what it is tied to: its launch, and the other ranks of its communication."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from stepscope.derive.comm.across import across
from stepscope.derive.kernel.occupancy import LIMITER, THEORETICAL
from stepscope.derive.kernel.room import room_of
from stepscope.derive.rank.data import NO_STAGE, RankData, ranks_of
from stepscope.derive.work.callers import callers
from stepscope.errors import StepscopeError
from stepscope.intervals.arrays import I64, NONE
from stepscope.model.demangle import demangle
from stepscope.model.statement import several
from stepscope.model.units import duration
from stepscope.timeline.kinds import MARKS
from stepscope.timeline.track import Track
from stepscope.web.functions import GROUP as FUNCTIONS
from stepscope.web.functions import facts, launched
from stepscope.web.messages import DetailsData
from stepscope.web.scene import Served, data_of

#: Ops of one call that arrows lead to.
_MOST_ARROWS = 64


def details(scene: Served, lane: int, row: int) -> DetailsData:
    """The mark `row` of a lane."""
    track = scene.tracks[lane]
    assert isinstance(track, Track)
    text = scene.texts[int(track.name[row])]
    lo, hi = int(track.start[row]), int(track.end[row])
    own_lo, own_hi = (scene.own(track.rank, at) for at in (lo, hi))
    of = {"rank": str(track.rank), "start": own_lo, "end": max(own_hi, own_lo + 1)}
    details: DetailsData = {
        "lane": lane,
        "row": row,
        "rank": track.rank,
        "start": lo,
        "end": hi,
        "name": demangle(text) if track.group == "streams" else text,
        "facts": [],
        "arrows": [],
        "command": scene.asker.command("timeline", **of),
    }
    data = data_of(scene, track.rank)
    if data is not None and track.group == "streams":
        _of_op(scene, data, int(track.row[row]), details)
    elif data is not None and track.group == "host":
        _of_call(scene, data, track, row, details)
    elif data is not None and track.group == FUNCTIONS:
        details["facts"] += facts(scene.profile, data, int(track.row[row]))
        _launches(scene, data, track.level, launched(data, int(track.row[row])), details)
    return details


def _of_op(scene: Served, data: RankData, op: int, found: DetailsData) -> None:
    one = np.array([op], np.int64)
    (row,) = data.ops[op].to_dicts()
    add = found["facts"].append
    add(("starts", str(row["start_ns"]), "instant"))
    if (range_ := data.text_of(data.enclosing(one))[0]) is not None:
        add(("range", range_, "text"))
    if data.ranges.height and (stage := data.stage_of(one)[0]) != NO_STAGE:
        add(("stage", stage, "text"))
    called_by = callers(data, one).row(0, named=True)
    for title, key in (("torch op", "torch_op"), ("module", "module"), ("line", "line")):
        if called_by[key] not in (None, range_):  # without modules, a range stands in for one
            add((title, called_by[key], "text"))
    detail = _detail(scene, data.rank, op)
    for title, stem in (("grid", "grid"), ("block", "block")):
        sizes = [detail.get(f"{stem}_{axis}") for axis in "xyz"]
        if None not in sizes:
            add((title, " × ".join(map(str, sizes)), "text"))
    for title, key, unit in (
        ("registers per thread", "registers", "text"),
        ("static shared memory", "smem_static", "bytes"),
        ("dynamic shared memory", "smem_dynamic", "bytes"),
        ("CUDA graph node", "graph_node", "text"),
    ):
        if detail.get(key) is not None:
            add((title, str(detail[key]), unit))
    if called_by["occupancy_pct"] is not None:
        add(("estimated occupancy", str(called_by["occupancy_pct"]), "percent"))
    allows = room_of(data, one).row(0, named=True)
    if allows[THEORETICAL] is not None:
        limit = f", by {allows[LIMITER]}" if allows[LIMITER] else ""
        add(("occupancy that the launch allows", f"{allows[THEORETICAL]:.3g} %{limit}", "text"))
    if row["bytes"] is not None:
        add(("bytes", str(row["bytes"]), "bytes"))
        if row["end_ns"] > row["start_ns"]:
            add(("rate", str(row["bytes"] / (row["end_ns"] - row["start_ns"])), "rate"))
    if data.launch[op] != NONE:
        _launched(scene, data, op, found)
    _alike(scene, data, op, found)
    _peers(scene, data.rank, op, found)


def _alike(scene: Served, data: RankData, op: int, found: DetailsData) -> None:
    """How long the same kernel usually takes here, and on the other ranks."""
    medians = {}
    for other in ranks_of(scene.profile):
        lengths = (other.end - other.start)[other.name == data.name[op]]
        if len(lengths):
            medians[other.rank] = len(lengths), int(np.median(lengths))
    n, usual = medians.pop(data.rank)
    if n > 1:
        found["facts"].append(("same name on this rank", f"{n:,} times, median {duration(usual)}", "text"))
    if medians:
        by_length = sorted(medians, key=lambda rank: medians[rank][1])
        least, most = by_length[0], by_length[-1]
        fastest = f"median {duration(medians[least][1])} (rank {least})"
        if most != least:
            fastest += f" to {duration(medians[most][1])} (rank {most})"
        found["facts"].append(("same name on other ranks", fastest, "text"))


def _launched(scene: Served, data: RankData, op: int, found: DetailsData) -> None:
    call = data.calls[int(data.launch[op])].to_dicts()[0]
    name = scene.profile.names[call["name"]]
    queued = max(int(data.start[op]) - call["end_ns"], 0)  # as `launches` counts it
    found["facts"] += [
        ("launched by", f"{name}, thread {call['tid']}", "text"),
        ("call", str(call["end_ns"] - call["start_ns"]), "time"),
        ("in the queue", str(queued), "time"),
    ]
    line = scene.lines[data.rank]
    found["arrows"].append(
        {
            "kind": "launch",
            "from": {"rank": data.rank, "thread": call["tid"], "at": line.moment(call["start_ns"])},
            "to": {"rank": data.rank, "stream": int(data.stream[op]), "at": found["start"]},
        }
    )


def _peers(scene: Served, rank: int, op: int, found: DetailsData) -> None:
    """The same communication on the other ranks, and who came last."""
    try:
        met = across(scene.profile)
    except StepscopeError:
        return
    sides = met.matched.sides
    own = np.flatnonzero((met.rank == rank) & (sides["op"].to_numpy() == op))
    if not len(own):
        return
    meeting = int(met.meeting[own[0]])
    first, count = int(met.first[meeting]), int(met.count[meeting])
    (about,) = met.meetings[meeting].to_dicts()
    mine = sides[first : first + count]
    last = int(met.rank[met.last_side[meeting]])
    add = found["facts"].append
    add(("communication", f"{about['kind']} of {count} ranks", "text"))
    if about["bytes"] is not None:
        add(("message", str(about["bytes"]), "bytes"))
    if count > 1:
        add(("last to arrive", f"rank {last}", "text"))
        add(("transfer", str(int(met.transfer[meeting])), "time"))
        add(("waited here", str(int(met.last[meeting] - met.start[own[0]])), "time"))
    for side in mine.select("rank", "stream", "start_ns", "shift").to_dicts():
        if side["rank"] != rank and side["rank"] in scene.lines and len(found["arrows"]) < _MOST_ARROWS:
            at = scene.lines[side["rank"]].moment(side["start_ns"] - side["shift"])
            found["arrows"].append(
                {
                    "kind": "comm",
                    "from": {"rank": rank, "stream": int(sides["stream"][int(own[0])]), "at": found["start"]},
                    "to": {"rank": side["rank"], "stream": side["stream"], "at": at},
                }
            )


def _of_call(scene: Served, data: RankData, track: Track, row: int, found: DetailsData) -> None:
    """The ops that a call launched."""
    own = scene.own(data.rank, int(track.start[row]))
    calls = np.flatnonzero((data.calls["tid"] == track.level).to_numpy())
    start = data.calls["start_ns"].to_numpy()[calls]
    if not len(calls) or track.kinds[0] != MARKS.index("call"):
        return
    k = int(np.searchsorted(start, own))
    near = [i for i in (k - 1, k) if 0 <= i < len(calls)]
    call = int(calls[min(near, key=lambda i: abs(int(start[i]) - own))])
    _launches(scene, data, track.level, np.flatnonzero(data.launch == call), found)


def _launches(scene: Served, data: RankData, thread: int, ops: I64, found: DetailsData) -> None:
    """The ops that were launched from a mark of the host, with arrows to them."""
    count = several(len(ops), "op")
    if len(ops):
        count += f", {duration(int((data.end - data.start)[ops].sum()))} of work"
    found["facts"].append(("launched", count, "text"))
    line = scene.lines[data.rank]
    found["arrows"] += [
        {
            "kind": "launch",
            "from": {"rank": data.rank, "thread": thread, "at": found["start"]},
            "to": {"rank": data.rank, "stream": int(data.stream[op]), "at": line.moment(int(data.start[op]))},
        }
        for op in ops[:_MOST_ARROWS].tolist()
    ]


def _detail(scene: Served, rank: int, op: int) -> dict[str, Any]:
    """Columns that are read only when somebody asks."""
    frame = next((f for r, f in scene.profile.by_rank("ops", detail=True) if r == rank), pl.DataFrame())
    return dict(frame[op].to_dicts()[0]) if frame.height else {}
