"""Faults of the host that were planted in real runs (four ranks on one H200): found first, by either profiler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import reference_captures
from marks import slow_unless
from stepscope import api
from stepscope.model.ranks import ranks_text

PLANTED = reference_captures.planted()


@pytest.mark.parametrize("backend", ["nsys", "torch"])
@pytest.mark.parametrize(
    "name", slow_unless("host-syncs".__eq__, ["slow-host", "dataloader", "host-syncs", "alloc", "tiny-kernels"])
)
def test_the_planted_fault_of_the_host_comes_first(
    reference_capture: Callable[[str, str], Path], name: str, backend: str
) -> None:
    result = api.analyse(api.open(reference_capture(name, backend), cache=False), "diagnose")
    faults = result.rows.filter(pl.col("id") != "profiler-distortion")  # said before all faults where it matters
    first = faults.row(0, named=True)
    assert first["id"] in PLANTED[name].ids, result.summary["statement"]
    if PLANTED[name].ranks:
        assert first["ranks"] == ranks_text(PLANTED[name].ranks)


@pytest.mark.parametrize("backend", ["nsys", "torch"])
def test_without_a_fault_little_is_found(reference_capture: Callable[[str, str], Path], backend: str) -> None:
    """Its pipeline's send/recv goes over loopback, and is exposed: a few per cent that are really there."""
    result = api.analyse(api.open(reference_capture("none", backend), cache=False), "diagnose")
    assert not [row for row in result.rows.to_dicts() if row["share_pct"] >= 4.0], result.summary["statement"]
