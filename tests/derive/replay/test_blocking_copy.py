"""A step that ends with a copy which the host waits for (`.cpu()`, `.item()`): faster kernels make it end sooner."""

from __future__ import annotations

import pytest

from fake import call, make, nvtx, op
from stepscope import api

US = 1000
KERNELS, LONG = 20, 30
#: How far the clocks of host and GPU may be apart (an MI300X's were by 2 to 4 µs).
APART = 2


def saved(copy: str | None, ends: int = 0) -> int:
    """What diagnose promises where products in float, launched ahead of time, could run on tensor cores."""
    calls = [call((10 + 10 * k) * US, (13 + 10 * k) * US, id=k + 1) for k in range(KERNELS)]
    ops = [
        op((15 + LONG * k) * US, (15 + LONG * (k + 1)) * US, "ampere_sgemm_128x64_tn", call=k + 1)
        for k in range(KERNELS)
    ]
    over = 15 + LONG * KERNELS
    if copy is not None:
        ops.append(op((over + 1) * US, (over + 4) * US, copy, kind="memcpy", copy_kind="DtoH", call=KERNELS + 1))
        calls.append(call(215 * US, (over + 4 + ends) * US, id=KERNELS + 1, name=copy))
    ranges = [nvtx(0, (over + 20) * US, "step 0"), nvtx((over + 21) * US, (over + 30) * US, "step 1")]
    profile = make([{"gpu": "NVIDIA H200"}], ops=ops, calls=calls, ranges=ranges)
    rows = api.analyse(profile, "diagnose", index=0, least=0.1).rows
    (row,) = rows.filter(rows["id"] == "no-tensor-cores").to_dicts()
    return int(row["recoverable_ns"])


@pytest.mark.parametrize(
    ("copy", "ends"),
    [
        pytest.param("cudaMemcpyAsync", 2, id="pageable memory"),
        pytest.param("cudaMemcpy", 2, id="a synchronous call"),
        pytest.param("hipMemcpyWithStream", -APART, id="clocks apart"),
    ],
)
def test_the_copy_comes_sooner_too(copy: str, ends: int) -> None:
    """It was made at once, and waited for the kernels before it on its stream, which the host launched ahead."""
    without = saved(None)
    assert without > 0.3 * KERNELS * LONG * US
    assert saved(copy, ends) == pytest.approx(without, rel=0.05)
