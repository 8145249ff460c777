"""Places in a tree of ranges: paths and order against brute force, and a thousand ranges within each other."""

from __future__ import annotations

import tracemalloc
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake import call, make, nvtx, op
from stepscope import api
from stepscope.derive.accounting import places
from stepscope.intervals.arrays import NONE
from stepscope.model.nesting import depths

TEXTS = ["a", "bb", "ccc"]


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    """Parents (of earlier ranges, or none), names and weights."""
    n = draw(st.integers(1, 20))
    parent = [draw(st.integers(-1, k - 1)) for k in range(n)]
    return (
        parent,
        draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)),
        draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)),
    )


@given(trees(), st.sampled_from([4096, 24]))
def test_paths_and_order_equal_brute_force(tree: tuple[list[int], list[int], list[int]], most: int):
    parent, name, weight = tree
    chains: list[tuple[str, ...]] = []
    for k, above in enumerate(parent):
        chains.append((*(chains[above] if above != NONE else ()), TEXTS[name[k]]))
    up = np.array(parent)
    depth = depths(up)
    assert depth.tolist() == [len(c) - 1 for c in chains]
    place, found = places.places_of(up, depth, np.array(name), pl.Series(TEXTS))
    assert len(set(zip(place.tolist(), chains, strict=True))) == len(set(place.tolist())) == len(set(chains))
    chain_of = dict(zip(place.tolist(), chains, strict=True))
    with patch.object(places, "MOST", most):
        paths = found.paths()
    for at, chain in chain_of.items():
        whole = " > ".join(chain)
        if len(whole) <= most or (paths[at] == whole and len(whole) <= most + 3):  # two halves and what joins them
            assert paths[at] == whole
        else:
            first, left_out, last = paths[at].split("…")
            assert whole.startswith(first) and whole.endswith(last) and len(paths[at]) <= most + 20
            texts = [t for t in paths[at].split(" > ") if "…" not in t]
            assert int(left_out.split()[0]) + len(texts) == len(chain)
    total = np.zeros(len(found.parent), np.int64)
    np.add.at(total, place, np.array(weight))
    heavy = {chain: -int(total[at]) for at, chain in chain_of.items()}
    want = sorted(chain_of.values(), key=lambda c: [(heavy[c[: k + 1]], c[k]) for k in range(len(c))])
    order = np.argsort(found.order(total))
    assert [chain_of[at] for at in order.tolist()] == want


@pytest.mark.parametrize(("n", "size"), [(1009, 6000), pytest.param(5000, 1200, marks=pytest.mark.slow)])
def test_ranges_within_each_other_take_memory_by_their_number(n: int, size: int):
    """6 MB of ranges, each within the one before: every path in full would be gigabytes."""
    ranges = [nvtx(k, 3 * n - k, f"range {k} {'x' * size}") for k in range(n)]
    calls = [call(n + 2 * k, n + 2 * k + 1, k + 1) for k in range(100)]
    profile = make(ops=[op(9 * n + k, 9 * n + k + 1, call=k + 1) for k in range(100)], calls=calls, ranges=ranges)
    profile.ranges  # noqa: B018 (reading is not what is measured)
    tracemalloc.start()
    try:
        rows = api.analyse(profile, "nvtx", whole=True).rows
        tree = api.analyse(profile, "breakdown", whole=True, tree=True).rows
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 300e6
    assert rows["range"].str.extract(r"^range (\d+) ", 1).cast(pl.Int64).to_list() == list(range(n))
    assert rows["host_ns"].to_list() == [3 * n - 2 * k for k in range(n)]
    assert rows["ops"][:1].to_list() == [100] and rows["self_host_ns"].sum() == 3 * n
    assert tree["depth"].to_list() == list(range(tree.height)) and tree["total_ns"][0] == 100
    assert max(rows["path"].str.len_chars()) < 5000


def test_paths_of_very_many_places_are_bounded_together():
    deep = 2000
    stack = places.Places(np.arange(deep) - 1, np.arange(deep), ["layer"] * deep)
    with patch.object(places, "ALL", 200_000), patch.object(places, "LEAST", 50):
        paths = stack.paths()
    assert sum(map(len, paths)) <= 200_000 * 1.3  # what was left out is counted in words
    assert paths[-1].startswith("layer > ") and "more…" in paths[-1]
