"""Perfetto traces on the wire, read by a reader of the tests' own: tracks, slices, flows, counters, findings."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exports import Message, double, h200, inner, job, messages, parsed
from fake import call, make, nvtx, op
from marks import slow_unless
from stepscope import api
from stepscope.api import parse_ranks
from stepscope.export import wire
from stepscope.export.tracks import lanes
from stepscope.export.write import export
from stepscope.model.profile import Profile
from stepscope.model.ranks import ranks_text

_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4


class Read:
    """A trace as a viewer reads it: events by time (ties in file order), begins and ends paired on a stack."""

    def __init__(self, path: Path) -> None:
        self.packets = messages(path)
        self.texts: dict[int, dict[int, str]] = defaultdict(dict)
        self.tracks: dict[int, dict[str, Any]] = {}
        for packet in self.packets:
            for interned in inner(packet, 12):
                for kind in interned:
                    for entry in inner(interned, kind):
                        self.texts[kind][_int(entry[1][0])] = _text(entry[2][0])
            for told in inner(packet, 60):
                process = inner(told, 3)
                self.tracks[_int(told.get(1, [0])[0])] = {
                    "name": _text(told[2][0]) if 2 in told else _text(process[0][6][0]) if process else "",
                    "parent": _int(told.get(5, [0])[0]),
                    "rank": _int(process[0][1][0]) - 1 if process else None,
                }
        events = [(_int(p[8][0]), n, e) for n, p in enumerate(self.packets) for e in inner(p, 11)]
        self.events = [(t, e) for t, _, e in sorted(events, key=lambda x: x[:2])]
        self.slices = self._paired()

    def _paired(self) -> list[dict[str, Any]]:
        open_slices: dict[int, list[dict[str, Any]]] = defaultdict(list)
        done = []
        for time, event in self.events:
            track = _int(event[11][0])
            if event[9] == [_BEGIN]:
                title = self.texts[2][_int(event[10][0])]
                table = self.texts[1][_int(event[3][0])]
                new = {"start": time, "track": track, "name": title, "table": table, "flows": event.get(47, [])}
                open_slices[track].append({**new, "args": self.arguments(event), "depth": len(open_slices[track])})
            elif event[9] == [_END]:
                done.append({**open_slices[track].pop(), "end": time})
        assert not any(open_slices.values())
        return done

    def arguments(self, event: Message) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for argument in inner(event, 4):
            name = self.texts[3][_int(argument[1][0])]
            for number, read in ((2, bool), (4, _signed), (5, double), (17, lambda i: self.texts[29][_int(i)])):
                if number in argument:
                    found[name] = read(argument[number][0])  # type: ignore[operator]
        return found

    def rank(self, track: int) -> int | None:
        while self.tracks[track]["rank"] is None and self.tracks[track]["parent"]:
            track = self.tracks[track]["parent"]
        rank: int | None = self.tracks[track]["rank"]
        return rank


def _int(value: int | bytes) -> int:
    assert isinstance(value, int)
    return value


def _signed(value: int | bytes) -> int:
    return _int(value) - (1 << 64 if _int(value) >> 63 else 0)


def _text(value: int | bytes) -> str:
    assert isinstance(value, bytes)
    return value.decode()


def _written(profile: Profile, folder: Path, **options: Any) -> Read:
    export(profile, folder / "out.pftrace", "perfetto", **options)
    return Read(folder / "out.pftrace")


@pytest.mark.parametrize("name", slow_unless("eager".__eq__, ["moe4", "eager"]))
def test_every_row_is_a_slice_of_its_rank_and_track(name, tmp_path):
    profile = api.open(h200(name, tmp_path), cache=False)
    read = _written(profile, tmp_path)
    for table in ("ops", "calls", "ranges", "syncs", "comms"):
        frame = profile.table(table)
        drawn = [s for s in read.slices if s["table"] == table]
        assert len(drawn) == frame.height
        lengths = Counter()
        for s in drawn:
            lengths[read.rank(s["track"])] += s["end"] - s["start"]
        summed = frame.group_by("rank").agg((pl.col("end_ns") - pl.col("start_ns")).sum())
        assert dict(lengths) == dict(summed.iter_rows())


@pytest.mark.slow
def test_streams_have_tracks_of_their_own(tmp_path):
    profile = api.open(h200("moe4", tmp_path), cache=False)
    read = _written(profile, tmp_path)
    drawn = Counter()
    for s in read.slices:
        if s["table"] == "ops":
            drawn[read.rank(s["track"]), read.tracks[s["track"]]["name"]] += 1
            assert s["depth"] == 0
    wanted = profile.ops.group_by("rank", "stream").len()
    assert drawn == {(rank, f"stream {stream}"): n for rank, stream, n in wanted.iter_rows()}


def test_a_call_and_what_it_launched_share_a_flow(tmp_path):
    profile = make(
        ops=[op(10, 20, call=1), op(20, 30, call=2), op(40, 50), op(60, 70, call=3), op(70, 80, call=3)],
        calls=[call(1, 2, 1), call(3, 4, 2), call(5, 6, 9), call(7, 8, 3)],
    )
    read = _written(profile, tmp_path)
    flows = {(s["table"], s["start"]): s["flows"] for s in read.slices}
    assert flows["calls", 1] == flows["ops", 10] != []
    assert flows["calls", 3] == flows["ops", 20] != flows["ops", 10]
    assert flows["calls", 5] == flows["ops", 40] == []
    assert flows["calls", 7] == flows["ops", 60] == flows["ops", 70] != []


@pytest.mark.slow
def test_the_ranks_of_a_communication_share_a_flow(tmp_path):
    profile = api.open(job(tmp_path / "job"), cache=False)
    read = _written(profile, tmp_path)
    collectives = profile.collectives().rows
    groups = defaultdict(set)
    for s in read.slices:
        for flow in s["flows"][1:]:
            groups[flow].add(read.rank(s["track"]))
    # `0-3` is a collective of four ranks, `2>0` a transfer.
    wanted = Counter(collectives["ranks"].str.replace(">", ",").to_list())
    drawn = Counter(ranks_text(sorted(ranks)) for ranks in groups.values())
    flat = Counter({ranks_text(sorted(parse_ranks(text))): 0 for text in wanted})
    for text, n in wanted.items():
        flat[ranks_text(sorted(parse_ranks(text)))] += n
    assert drawn == flat and len(groups) == collectives.height


def test_arguments_are_the_columns(tmp_path):
    ops = [op(10, 20, call=1, registers=64, stream=-1), op(30, 40, bytes=1 << 40, kind="memcpy", copy_kind="PtoP")]
    read = _written(make(ops=ops, ranges=[nvtx(0, 50, "step 0", closed=False, color=0xFFAABBCC)]), tmp_path)
    by_start = {s["start"]: s for s in read.slices}
    assert by_start[10]["args"] == {"kind": "kernel", "correlation": 1, "registers": 64, "role": "compute"}
    expected = {"kind": "memcpy", "stream": 7, "bytes": 1 << 40, "copy_kind": "PtoP", "role": "comm"}
    assert by_start[30]["args"] == expected
    assert by_start[0]["args"] == {"kind": "pushpop", "tid": 1, "closed": False, "color": 0xFFAABBCC}


def test_counters_are_counted_on_tracks_of_their_own(tmp_path):
    samples = [
        {"start_ns": t, "device": d, "name": n, "value": v}
        for t, d, n, v in [(5, 0, "SM active", 12.5), (6, 0, "SM active", 99.0), (5, 0, "power", 300.0)]
    ]
    read = _written(make(ops=[op(1, 2)], counters=samples), tmp_path)
    found = [(t, read.tracks[_int(e[11][0])]["name"], double(e[44][0])) for t, e in read.events if e[9] == [_COUNTER]]
    assert sorted(found) == [(5, "SM active", 12.5), (5, "power", 300.0), (6, "SM active", 99.0)]


def test_times_below_zero_are_shifted(tmp_path):
    profile = make(ops=[op(-500, -400), op(-300, 100)])
    read = _written(profile, tmp_path)
    assert [(s["start"], s["end"]) for s in read.slices] == [(0, 100), (200, 600)]
    again = api.open(tmp_path / "out.pftrace", cache=False)
    assert again.ops.select("start_ns", "end_ns").rows() == [(-500, -400), (-300, 100)]


@pytest.mark.slow
def test_findings_have_a_track_of_their_own(tmp_path):
    folder = job(tmp_path / "job")
    profile = api.open(folder, cache=False)
    profile.export(tmp_path / "out.pftrace")
    read = Read(tmp_path / "out.pftrace")
    drawn = [s for s in read.slices if s["table"] == "findings"]
    found = profile.diagnose().rows
    assert {s["name"] for s in drawn} == set(found["title"].to_list()) != set()
    assert not any(str(tmp_path) in s["args"]["command"] for s in drawn)
    assert {s["args"]["recoverable_ns"] for s in drawn} == set(found["recoverable_ns"].to_list())
    assert {read.tracks[read.tracks[s["track"]]["parent"]]["name"] for s in drawn} == {"findings"}


_SPANS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 12)), max_size=25)


@given(_SPANS, st.booleans())
def test_on_a_lane_nothing_overlaps(spans, nested):
    track, start, length = np.array(spans, dtype=np.int64).reshape(-1, 3).T
    end = start + length
    lane = lanes(track, start, end, nested=nested)
    for i in range(len(spans)):
        for j in range(i):
            if track[i] == track[j] and lane[i] == lane[j]:
                apart = end[i] <= start[j] or end[j] <= start[i]
                within = (start[i] >= start[j] and end[i] <= end[j]) or (start[j] >= start[i] and end[j] <= end[i])
                assert apart or (nested and within)
    if not nested and len(spans):
        # No more lanes than ops that run at once.
        for t in {int(v) for v in track}:
            mine = track == t
            most = max(int((((start <= s) & (end > s) | (start == s)) & mine).sum()) for s in start[mine])
            assert int(lane[mine].max()) + 1 <= max(most, 1)


@given(
    st.lists(st.tuples(st.integers(-(1 << 63), (1 << 63) - 1), st.one_of(st.none(), st.integers(0, 300))), min_size=1)
)
def test_rows_decode_to_what_was_written(rows):
    first = np.array([a for a, _ in rows], dtype=np.int64)
    second = np.array([b or 0 for _, b in rows], dtype=np.int64)
    there = np.array([b is not None for _, b in rows])
    part = wire.Some(wire.message(3, wire.numbers(1, second)), there)
    data = wire.rows(wire.message(1, wire.message(2, [*wire.numbers(7, first), part])), len(rows))
    found = [inner(m, 2)[0] for m in inner(parsed(data), 1)]
    assert [_signed(m[7][0]) for m in found] == first.tolist()
    assert [inner(m, 3)[0].get(1) if 3 in m else None for m in found] == [None if b is None else [b] for _, b in rows]
