"""Blocks, segments and room against an allocator that keeps every moment's truth."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from derive.memory.allocator import program
from fake import make
from stepscope.analyses.memory.room import PAGE, room
from stepscope.derive.memory.history import histories


@pytest.mark.parametrize("seed", range(30))
def test_every_moment_is_reconstructed(seed):
    profile, truth = program(seed)
    (history,) = histories(profile)
    assert history.events == len(truth.events)
    for moment, (blocks, segments) in enumerate(truth.truth):
        alive = history.blocks.alive(moment)
        found = {
            int(a): (int(r), int(s))
            for a, r, s in zip(
                history.blocks.address[alive], history.blocks.requested[alive], history.blocks.size[alive], strict=True
            )
        }
        if truth.events[moment]["action"] != "free_requested":
            assert found == blocks
        assert history.reserved[moment + 1] == sum(segments.values())
        assert history.allocated[moment + 1] == sum(size for _, size in found.values())


@pytest.mark.parametrize("seed", range(10))
def test_room_is_cached_or_fragmented_and_sums(seed):
    profile, truth = program(seed)
    (history,) = histories(profile)
    for moment in range(0, history.events, 7):
        blocks, segments = truth.truth[moment]
        if truth.events[moment]["action"] == "free_requested":
            continue
        cached = sum(n for base, n in segments.items() if not any(base <= a < base + n for a in blocks))
        found = room(history, moment)
        asked = sum(asked for asked, _ in blocks.values())
        assert found.cached == cached
        assert found.fragmentation is not None
        assert asked + found.cached + found.fragmentation == sum(segments.values())


def test_pages_of_expandable_segments():
    """Three pages are mapped, one is returned and mapped again: what is mapped is what is reserved, at every moment."""
    base = 1 << 30
    blocks = [
        {"address": base, "bytes": PAGE, "requested_bytes": PAGE, "state": "allocated"},
        {"address": base + PAGE, "bytes": 2 * PAGE, "state": "free"},
    ]
    common = {"device": 0, "segment": base, "segment_bytes": 3 * PAGE, "small": False, "expandable": True}
    events = [
        ("segment_map", base + PAGE, 2 * PAGE),
        ("alloc", base + 2 * PAGE, 1000),
        ("free", base + 2 * PAGE, 1000),
        ("segment_unmap", base + 2 * PAGE, PAGE),
        ("segment_map", base + 2 * PAGE, PAGE),
    ]
    rows = [
        {"row": i, "start_ns": i, "action": a, "device": 0, "address": at, "bytes": n}
        for i, (a, at, n) in enumerate(events)
    ]
    (history,) = histories(make(allocations=rows, blocks=[common | b for b in blocks]))
    assert (history.reserved // PAGE).tolist() == [1, 3, 3, 3, 2, 3]
    assert room(history, 1).cached == PAGE  # the page between the two blocks
    assert room(history, 1).fragmentation == PAGE - 1000
    assert room(history, 3).cached == PAGE


def test_kineto_s_samples_have_totals_and_no_segments():
    events = [
        {"row": 0, "start_ns": 5, "action": "alloc", "device": 0, "address": 64, "bytes": 512, "allocated_bytes": 1512},
        {"row": 1, "start_ns": 6, "action": "free", "device": 0, "address": 4096, "bytes": 800, "allocated_bytes": 712},
        {"row": 2, "start_ns": 7, "action": "free", "device": 0, "address": 64, "bytes": 512, "allocated_bytes": 200},
    ]
    (history,) = histories(make(allocations=[e | {"reserved_bytes": 4096} for e in events]))
    assert history.unnamed == 200 and history.segments is None
    assert history.allocated.tolist() == [1000, 1512, 712, 200]
    assert room(history, 0).cached == 4096 - 1512


def test_no_events_at_all():
    held = {"device": 0, "segment": 0, "segment_bytes": 4096, "small": False, "expandable": False}
    row = held | {"address": 0, "bytes": 1024, "requested_bytes": 1000, "state": "allocated"}
    free = held | {"address": 1024, "bytes": 3072, "state": "free"}
    profile = make(allocations=[], blocks=[row, free])
    (history,) = histories(profile)
    assert history.peak() == -1 and history.reserved.tolist() == [4096]
    assert room(history, -1).fragmentation == 3096
    assert isinstance(history.action, pl.Series) and np.array_equal(history.allocated, [1024])
