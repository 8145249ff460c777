"""Real captures of examples/moe_reference on one H200 (four ranks side by side under MPS): the planted cause shows.

Captured by examples/moe_reference/capture_h200.sh with nsys 2025.3, scrubbed. Times on a shared GPU mean little, so
each fault is told from the healthy capture by what it changes.
"""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from stepscope import api

DATA = Path(__file__).parents[1] / "data" / "moe_reference"
FAULTS = ("none", "serialized", "straggler", "alloc", "dataloader")


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("h200")
    for name in FAULTS:
        (folder / f"{name}.sqlite").write_bytes(lzma.decompress((DATA / f"{name}.sqlite.xz").read_bytes()))
    return folder


@cache
def profile(folder: Path, name: str) -> api.Profile:
    return api.open(folder / f"{name}.sqlite", cache=False)


def hidden_pct(folder: Path, name: str) -> float:
    total = api.analyse(profile(folder, name), "overlap", whole=True).summary["total"]
    return 100 * (1 - sum(t["exposed_ns"] for t in total) / sum(t["comm_ns"] for t in total))


def idle_ns(folder: Path, name: str, key: str, value: str, **window: bool) -> int:
    rows = api.analyse(profile(folder, name), "idle", by=key, **window).rows
    return int(rows.filter(pl.col(key) == value)["total_ns"].sum())


@pytest.mark.parametrize("name", FAULTS)
def test_every_rank_says_who_it_is(captures: Path, name: str) -> None:
    rows = api.analyse(profile(captures, name), "setup").rows
    assert rows["rank"].to_list() == [0, 1, 2, 3]
    assert rows.select("pp_size", "ep_size").unique().rows() == [(2, 2)]
    assert not rows["inferred"].any()


def test_what_is_waited_for_at_once_hides_nothing(captures: Path) -> None:
    assert hidden_pct(captures, "serialized") < 0.05 < 5 < hidden_pct(captures, "none")


def test_the_slow_rank_is_named_and_its_compute_blamed(captures: Path) -> None:
    first = api.analyse(profile(captures, "straggler"), "stragglers").rows.row(0, named=True)
    assert (first["rank"], first["cause"]) == (3, "compute")
    causes = api.analyse(profile(captures, "none"), "stragglers").rows["cause"].to_list()
    assert "compute" not in causes


def test_the_allocator_is_the_cause_of_idle_time(captures: Path) -> None:
    assert idle_ns(captures, "none", "cause", "alloc", whole=True) == 0
    assert idle_ns(captures, "alloc", "cause", "alloc", whole=True) > 50_000_000


def test_the_stalled_loader_is_named_by_its_range(captures: Path) -> None:
    """40 ms of stall a step: hidden from a step's own window, shown by its period."""
    stalled = idle_ns(captures, "dataloader", "range", "data", anchor=None, whole=True)
    assert stalled > 4 * 30_000_000  # four ranks, one stall between the two steps
    assert stalled > 10 * idle_ns(captures, "none", "range", "data", whole=True)
