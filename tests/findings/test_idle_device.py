"""A process with two GPUs: one that waits is named, two that share the work are not."""

from __future__ import annotations

from typing import Any

import pytest

import cited
from fake import call, make, nvtx, op
from stepscope import api

US = 1000


def job(second: int) -> dict[str, Any]:
    """Ten kernels of 100 µs on GPU 0, and ten of `second` µs on GPU 1 beside them, launched ahead."""
    ops, calls = [], []
    for k in range(10):
        for device, length in ((0, 100), (1, second)):
            n = 2 * k + device + 1
            calls.append(call(n * US, n * US + 500, n))
            at = (100 + 100 * k) * US
            ops.append(op(at, at + length * US, stream=7 + device, call=n, device=device))
    return {"ops": ops, "calls": calls, "ranges": [nvtx(0, 1_100 * US, "step 1")]}


@pytest.mark.parametrize(("second", "found"), [(20, True), (90, False)])
def test_a_device_that_waits(second: int, found: bool) -> None:
    assert not [text for one in cited.every(make(**job(second))) for text in one.wrong]
    rows = {row["id"]: row for row in api.analyse(make(**job(second)), "diagnose").rows.to_dicts()}
    assert ("idle-device" in rows) is found
    if found:
        assert rows["idle-device"]["recoverable_ns"] == (1000 - (1000 + 200) // 2) * US
        assert rows["idle-device"]["title"] == "GPU 1 of rank 0 idles while GPU 0 works"
