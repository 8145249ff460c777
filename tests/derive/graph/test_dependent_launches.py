"""Kernels that begin before the one before them ends (programmatic dependent launches), in µs."""

from __future__ import annotations

import numpy as np
import pytest

from fake import call, make, nvtx, op
from stepscope.derive.graph.releases import releases
from stepscope.derive.rank.data import rank_of
from stepscope.derive.replay.change import Change
from stepscope.derive.windows.spec import WindowSpec
from stepscope.findings.case import Case

US = 1000


def test_they_do_not_say_how_long_launches_take() -> None:
    """A host that is ahead: all kernels wait in the stream. Every tenth begins 1 µs before the one before it ends, long
    after its launch; the first launches of the capture alone tell what a launch takes."""
    calls, ops = [], []
    at = 20
    for k in range(60):
        calls.append(call((10 + 5 * k) * US, (12 + 5 * k) * US, id=k + 1))
        begun = at - (k % 10 == 9)
        ops.append(op(begun * US, (begun + 100) * US, call=k + 1))
        at = begun + 100
    ranges = [nvtx(0, 400 * US, "step 0"), nvtx(401 * US, 402 * US, "step 1")]
    profile = make(ops=ops, calls=calls, ranges=ranges)
    assert releases(rank_of(profile, 0)).latency.launch == 8 * US  # from 12 to 20
    case = Case(profile, WindowSpec(index=0))
    change = Change(op_factor={0: (np.arange(60), np.full(60, 0.5))})
    assert case.replay.saved(change, None) == pytest.approx(60 * 50 * US, rel=0.05)
