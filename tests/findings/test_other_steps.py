"""Steps that alternate: evidence is of the median one, gains are of the mean."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from fake import call, make, nvtx, op
from stepscope import api

MS = 1_000_000


def steps(*lengths: int) -> dict[str, Any]:
    """Steps of so many ms, one after the other: the GPU computes for 5 ms at the end of each."""
    tables: dict[str, Any] = {"ops": [], "calls": [], "ranges": []}
    at = 0
    for k, length in enumerate(lengths):
        end = at + length
        tables["calls"].append(call((end - 6) * MS, (end - 6) * MS + 5000, k + 1))
        tables["ops"].append(op((end - 5) * MS, end * MS, call=k + 1))
        tables["ranges"].append(nvtx(at * MS, end * MS, f"step {k}"))
        at = end
    return tables


@pytest.mark.parametrize(("lengths", "said"), [((20, 20, 200, 20, 200), True), ((20, 21, 20, 19, 20), False)])
def test_steps_that_alternate_are_said(lengths: tuple[int, ...], said: bool) -> None:
    result = api.analyse(make(**steps(*lengths)), "diagnose")
    assert result.summary["step_ns"] == 20 * MS
    assert (result.summary["mean_step_ns"] != result.summary["step_ns"]) is said
    notes = [note for note in result.notes if note.startswith("steps differ")]
    assert bool(notes) is said
    if said:  # 440 ms in four steps, of which 20 compute; the first is no sample
        assert "takes 20 ms, the mean is 110 ms, 5 % of it compute" in notes[0]
        assert result.summary["mean_step_ns"] == 110 * MS


def test_the_mean_of_two_kinds() -> None:
    """Every third step 180 ms longer: 60 ms a step, whatever part of the period the capture holds."""
    result = api.analyse(make(**steps(20, 200, 20, 20, 200, 20, 20, 200, 20)), "diagnose")
    (found,) = result.rows.filter(pl.col("id") == "spikes").iter_rows(named=True)
    assert "every 3 steps" in found["title"] and found["recoverable_ns"] == 60 * MS
    assert result.summary["mean_step_ns"] == 80 * MS
