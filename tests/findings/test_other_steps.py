"""Steps that alternate: the answer is about the median one, and says what all of them have."""

from __future__ import annotations

from typing import Any

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
    notes = [note for note in result.notes if note.startswith("steps differ")]
    assert bool(notes) is said
    if said:  # 460 ms in five steps, of which 25 compute
        assert "takes 20 ms, all of them 92 ms on average, 5 % of it compute" in notes[0]
