"""Reference costs stay below what the hardware can, and are scaled by it."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.derive.work.reference import (
    attention_rate,
    bandwidth,
    convolution_rate,
    product_rate,
    rows,
    share_of_bandwidth,
    stream_ns,
)
from stepscope.model.gpus import Gpu, gpu_of


def _gpu(name: str) -> Gpu:
    found = gpu_of(name)
    assert found is not None
    return found


H200, A100 = _gpu("NVIDIA H200"), _gpu("NVIDIA A100-SXM4-80GB")


@pytest.mark.parametrize("gpu", [H200, A100])
@pytest.mark.parametrize("precision", ["bf16", "tf32", "fp32"])
def test_products_stay_below_the_peak_and_large_ones_come_near(gpu: Gpu, precision: str) -> None:
    rates = [product_rate(gpu, precision, flops) for flops in (1e7, 1e9, 1e11, 1e13)]
    peak = gpu.rate(precision)  # type: ignore[arg-type]
    assert peak is not None
    values = [rate.value for rate in rates if rate is not None]
    assert values == sorted(values) and 0.6 * peak < values[-1] < peak
    assert all(rate is not None and rate.scaled is (gpu is A100) for rate in rates)


def test_no_measurement_beats_the_hardware() -> None:
    """But for launches that the L2 cache serves."""
    for row in rows():
        peak = H200.rate(row.precision if row.op != "attention" else "bf16")  # type: ignore[arg-type]
        assert peak is not None
        # cuDNN's Winograd does fewer products than a convolution asks for.
        allowed = 2.25 if "convolution" in row.op and row.precision == "fp32" else 1.0
        assert row.flops / row.us / 1e6 < allowed * peak, row
        assert row.bytes / row.us / 1e3 < H200.gbps or row.bytes < 64e6, row


def test_streaming_grows_with_bytes_and_never_takes_nothing() -> None:
    times = stream_ns(H200, np.array([1.0, 1e4, 1e6, 1e8, 1e9, 1e10]))
    assert (np.diff(times) >= 0).all() and times[0] > 500
    assert times[-1] == pytest.approx(1e10 / bandwidth(H200).value, rel=0.02)
    assert 0.85 * H200.gbps < bandwidth(H200).value < H200.gbps
    assert bandwidth(A100).value == pytest.approx(bandwidth(H200).value * A100.gbps / H200.gbps)


def test_attention_by_heads_lengths_and_masks() -> None:
    short, long = (attention_rate(H200, 64, length) for length in (512, 8192))
    wide = attention_rate(H200, 128, 8192)
    assert short is not None and long is not None and wide is not None
    assert short.value < long.value < wide.value < 989
    back = attention_rate(H200, 128, 8192, backward=True)
    assert back is not None and back.value < wide.value


def test_layouts_of_convolutions() -> None:
    last, first = (convolution_rate(H200, "bf16", 3e10, layout=layout) for layout in ("nhwc", "nchw"))
    assert last is not None and first is not None and last.value > 1.4 * first.value


def test_shares_of_the_bandwidth() -> None:
    fused, foreach = share_of_bandwidth("adamw fused"), share_of_bandwidth("adamw foreach")
    assert fused is not None and foreach is not None and 1 > fused > 2 * foreach
    assert share_of_bandwidth("nobody's op") is None
