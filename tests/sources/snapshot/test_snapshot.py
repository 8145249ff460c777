"""Snapshots of the allocator: every table cell by cell, and Python's own unpickler as the truth for a real one."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stepscope import BadInput, api
from stepscope.sources.pickled.machine import Machine
from stepscope.sources.pickled.refusals import Kind
from stepscope.sources.snapshot import looks_like_snapshot
from stepscope.sources.snapshot.collect import Collector

REAL = Path(__file__).parents[4] / "shared/traces/h200/memory/adamw_6layer.snapshot.pickle"

FRAMES = [{"name": "forward", "filename": "model.py", "line": 7}, {"name": "main", "filename": "train.py", "line": 3}]
NATIVE = [{"name": "at::empty", "filename": "??", "line": 0}, FRAMES[1]]


def event(
    action: str, address: int, size: int, time: int, frames: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time, "frames": frames or []}


def block(address: int, size: int, state: str = "active_allocated", requested: int | None = None) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": requested or size, "state": state, "frames": []}


def segment(address: int, blocks: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    size = sum(b["size"] for b in blocks)
    return {
        "device": 0, "address": address, "total_size": size, "stream": 0, "segment_type": "large",
        "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks,
    } | more  # fmt: skip


def snapshot(events: list[dict[str, Any]], segments: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "segments": segments,
        "device_traces": [events],
        "allocator_settings": {"expandable_segments": False},
    } | more


def written(tmp_path: Path, value: object, name: str = "s.pickle", protocol: int = 4) -> Path:
    path = tmp_path / name
    path.write_bytes(pickle.dumps(value, protocol))
    return path


SMALL = snapshot(
    [
        event("segment_alloc", 4096, 2048, 1_000_010, NATIVE),
        event("alloc", 4096, 500, 1_000_011, FRAMES),
        event("free_requested", 4096, 500, 1_000_012, FRAMES),
        event("free_completed", 4096, 500, 1_000_013, FRAMES),
        {"action": "oom", "device_free": 77, "size": 9999, "stream": 0, "time_us": 1_000_020, "frames": FRAMES},
    ],
    [segment(4096, [block(4096, 512, requested=500), block(4608, 1536, "inactive")])],
    external_annotations=[
        {"stage": "START", "name": "Optimizer.step#AdamW.step", "device": 0, "time_us": 1_000_000},
        {"stage": "END", "name": "Optimizer.step#AdamW.step", "device": 0, "time_us": 1_000_009},
    ],
)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_cell(tmp_path, protocol):
    profile = api.open(written(tmp_path, SMALL, protocol=protocol), cache=False)
    events = profile.table("allocations").drop("rank", "tid", "allocated_bytes", "reserved_bytes", "device", "stream")
    assert events.rows() == [
        (0, 10_000, "segment_alloc", 4096, 2048, 0, None),
        (1, 11_000, "alloc", 4096, 500, 1, None),
        (2, 12_000, "free_requested", 4096, 500, 1, None),
        (3, 13_000, "free", 4096, 500, 1, None),
        (4, 20_000, "oom", None, 9999, 1, 77),
    ]
    blocks = profile.table("blocks").select("address", "bytes", "requested_bytes", "state", "segment", "segment_bytes")
    assert blocks.rows() == [(4096, 512, 500, "allocated", 4096, 2048), (4608, 1536, 1536, "free", 4096, 2048)]
    stacks, names = profile.table("stacks"), profile.names
    texts = [(c, d, names[n], None if f is None else names[f], line) for _, c, d, n, f, line in stacks.rows()]
    assert texts == [
        (0, 0, "at::empty", None, None),
        (0, 1, "main", "train.py", 3),
        (1, 0, "forward", "model.py", 7),
        (1, 1, "main", "train.py", 3),
    ]
    (row,) = profile.ranges.select("name", "start_ns", "end_ns").rows()
    assert (names[row[0]], *row[1:]) == ("Optimizer.step#AdamW.step", 0, 9_000)
    assert profile.sources[0].epoch_ns == 1_000_000_000


def test_it_is_the_cache_s_too(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = written(tmp_path, SMALL, "rank3.pickle")
    first, again = api.open(path), api.open(path)
    assert first.ranks["rank"].to_list() == [3]
    assert first.table("allocations").equals(again.table("allocations"))


def test_gzip_and_other_devices(tmp_path):
    value = SMALL | {"device_traces": [[], SMALL["device_traces"][0]]}
    path = tmp_path / "s.pickle.gz"
    path.write_bytes(gzip.compress(pickle.dumps(value)))
    assert api.open(path, cache=False).table("allocations")["device"].to_list() == [1] * 5


@pytest.mark.slow
def test_many_events_with_and_without_stacks(tmp_path):
    """More than a batch, more than the bound on what is kept, and stacks that are equal but not the same object."""
    events = [event("alloc", 512 * i, 8, i, [dict(f) for f in FRAMES] if i % 8 == 1 else []) for i in range(300_000)]
    table = api.open(written(tmp_path, snapshot(events, [])), cache=False).table("allocations")
    assert table.height == 300_000 and table["chain"].to_list()[:10] == [None, 0, *[None] * 7, 0]
    assert table["address"].to_list() == list(range(0, 512 * 300_000, 512))


@pytest.mark.skipif(not REAL.exists(), reason="needs ../shared")
def test_a_real_one_as_python_s_own_unpickler_has_it():
    with REAL.open("rb") as file:
        truth = pickle.load(file)  # ours, and trusted
    profile = api.open(REAL, cache=False)
    events = truth["device_traces"][0]
    base = min(min(e["time_us"] for e in events), min(a["time_us"] for a in truth["external_annotations"]))
    table = profile.table("allocations")
    assert table["start_ns"].to_list() == [(e["time_us"] - base) * 1000 for e in events]
    assert table["address"].to_list() == [e["addr"] for e in events]
    assert table["bytes"].to_list() == [e["size"] for e in events]
    renamed = {"free_completed": "free"}
    assert table["action"].to_list() == [renamed.get(e["action"], e["action"]) for e in events]
    blocks = sorted((b["address"], b["size"], s["address"]) for s in truth["segments"] for b in s["blocks"])
    assert profile.table("blocks").select("address", "bytes", "segment").rows() == blocks
    frames = profile.table("stacks").sort("chain", "depth")
    names = profile.names
    stacks = {
        chain: [names[n] for n in frame["name"]] for (chain,), frame in frames.group_by(["chain"], maintain_order=True)
    }
    assert [stacks[c] for c in table["chain"].to_list()] == [[f["name"] for f in e["frames"]] for e in events]
    assert profile.ranges.height == len(truth["external_annotations"]) // 2


def test_in_a_directory_with_traces_it_is_left_to_its_own_question(tmp_path):
    written(tmp_path, SMALL)
    assert api.open(tmp_path, cache=False).sources[0].format == "torch-snapshot"
    (tmp_path / "rank0.pt.trace.json").write_text(
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "pid": 0, "tid": 7}]}'
    )
    assert [s.format for s in api.open(tmp_path, cache=False).sources] == ["kineto"]


def test_unknown_actions_are_counted(tmp_path):
    profile = api.open(written(tmp_path, snapshot([event("defragment", 1, 2, 3)], [])), cache=False)
    assert profile.table("allocations")["action"].to_list() == ["unknown"]
    assert any("defragment" in str(note) for note in profile.notes)


def test_a_snapshot_of_nothing_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no segment"):
        api.open(written(tmp_path, snapshot([], [])), cache=False).table("blocks")


def test_blocks_of_old_snapshots_have_no_address(tmp_path):
    old = [{k: v for k, v in block(0, n).items() if k != "address"} for n in (512, 1024, 512)]
    value = snapshot([], [segment(4096, old), segment(65536, [dict(b) for b in old])])
    found = api.open(written(tmp_path, value), cache=False).table("blocks").select(pl.col("address"))
    assert found["address"].to_list() == [4096, 4608, 5632, 65536, 66048, 67072]


def test_an_unsigned_number_is_read_as_c_has_it():
    """Native frames have 2^64-1 as their line."""
    for value in ((1 << 64) - 1, 1 << 63, (1 << 63) - 1, -1):
        read = Machine("x", Kind("snapshot", "", ""), pickle.dumps([value]), Collector()).run()
        assert read == [value - (1 << 64) if value >> 63 == 1 else value]
    with pytest.raises(BadInput, match="64 bits"):
        Machine("x", Kind("snapshot", "", ""), pickle.dumps([1 << 64]), Collector()).run()


def test_any_key_may_come_first():
    content = {"device_traces": [[]], "allocator_settings": {}, "segments": []}
    assert looks_like_snapshot(pickle.dumps(content)) and looks_like_snapshot(pickle.dumps(content, 2))
    assert not looks_like_snapshot(pickle.dumps({"entries": [], "pg_config": {}}))
