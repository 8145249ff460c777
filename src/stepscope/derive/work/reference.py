"""Reference costs: what good kernels reach, measured on an H200 by `bench/good_times.py` (reference.csv).

On another GPU the rates are those of the H200, scaled by the ratio of the peaks that the data sheets state
(`model/gpus.py`), and marked so. A rate is of the work that an op *needs*: a product's FLOPs by its time.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import cache
from importlib.resources import files

import numpy as np
from msgspec import Struct

from stepscope.intervals.arrays import F64
from stepscope.model.gpus import Gpu, Precision, gpu_of

MEASURED_ON = "H200"
_FORWARD, _BACKWARD = "", " backward"
#: Ops that only stream through memory: together they say what memory gives a launch of so many bytes.
_STREAMING = ("cast", "add")


class Rate(Struct, frozen=True):
    """10¹² operations (or 10⁹ bytes) a second, and whether it was measured on this GPU or scaled to it."""

    value: float
    scaled: bool

    def said(self) -> str:
        """From where it is known."""
        return f"measured on an {MEASURED_ON}" + (", scaled by peak rates" if self.scaled else "")


class Row(Struct, frozen=True):
    """One measurement."""

    op: str
    precision: str
    sizes: dict[str, str]
    flops: float
    bytes: float
    us: float


@cache
def rows() -> tuple[Row, ...]:
    """The measured table."""
    lines = files("stepscope.derive.work").joinpath("reference.csv").read_text("utf-8").splitlines()
    return tuple(
        Row(
            one["op"],
            one["precision"],
            dict(part.split("=") for part in one["sizes"].split()),
            *(float(one[column]) for column in ("flops", "bytes", "us")),
        )
        for one in csv.DictReader(line for line in lines if not line.startswith("#"))
    )


def product_rate(gpu: Gpu, precision: str, flops: float) -> Rate | None:
    """What an aligned product of so many FLOPs reaches; None where the GPU has no such numbers."""
    return _at(gpu, _curve("product", _known(precision), _is_square), flops, precision)


def convolution_rate(
    gpu: Gpu, precision: str, flops: float, *, backward: bool = False, layout: str = "nhwc"
) -> Rate | None:
    """What a convolution of 3 x 3 in this layout reaches."""
    kind = "convolution" + (_BACKWARD if backward else _FORWARD)
    fits = _where(layout=layout, kernel="3")
    return _at(gpu, _curve(kind, _known(precision), fits), flops, precision)


def attention_rate(gpu: Gpu, head: int, length: int, *, causal: bool = True, backward: bool = False) -> Rate | None:
    """What fused attention of half precision reaches, of the FLOPs that a causal mask leaves."""
    kind = "attention" + (_BACKWARD if backward else _FORWARD)
    heads = sorted({int(r.sizes["head"]) for r in rows() if r.op == kind})
    nearest = min(heads, key=lambda known: abs(np.log(known / max(head, 1))))
    rates = [r for r in rows() if r.op == kind and r.sizes["causal"] == str(causal) and r.sizes["head"] == str(nearest)]
    if not rates:  # unusual sizes of heads were only measured with a mask
        rates = [r for r in rows() if r.op == kind and r.sizes["head"] == str(nearest)]
    by_length = sorted((float(r.sizes["length"]), r.flops / r.us / 1e6) for r in rates)
    scale = _scale(gpu, "bf16")
    if scale is None:
        return None
    return Rate(_interpolated(by_length, length) * scale, gpu.name != MEASURED_ON)


def stream_ns(gpu: Gpu, moved: F64) -> F64:
    """How long a good kernel takes to read and write so many bytes."""
    measured = sorted({(r.bytes, r.us) for r in rows() if r.op in _STREAMING})
    size, time = (np.log([pair[i] for pair in measured]) for i in range(2))
    scale = _of(MEASURED_ON).gbps / gpu.gbps
    some = np.log(np.maximum(moved, 1.0))
    inside = np.exp(np.interp(some, size, time))
    beyond = np.exp(some - size[-1] + time[-1])  # large ones are at the bandwidth
    least = 1e3 * np.exp(time[0])
    stream_ns: F64 = np.maximum(1e3 * np.where(some > size[-1], beyond, inside) * scale, min(least, least * scale))
    return stream_ns


def bandwidth(gpu: Gpu) -> Rate:
    """10⁹ bytes a second that large streaming kernels reach."""
    best = max(r.bytes / r.us / 1e3 for r in rows() if r.op in _STREAMING and r.us > 200)
    return Rate(best * gpu.gbps / _of(MEASURED_ON).gbps, gpu.name != MEASURED_ON)


def share_of_bandwidth(op: str, **sizes: object) -> float | None:
    """The part of what streaming kernels reach that this op does: `layer norm`, `cross entropy`, `adamw fused`, …"""
    wanted = {key: str(value) for key, value in sizes.items()}
    matching = [r for r in rows() if r.op == op and wanted.items() <= r.sizes.items()]
    if not matching:
        return None
    return max(r.bytes / r.us / 1e3 for r in matching) / bandwidth(_of(MEASURED_ON)).value


@cache
def scores_reach() -> float:
    """The part of the peak that products with attention's scores reach, heads of 64: memory bounds them."""
    rates = [r.flops / r.us / 1e6 for r in rows() if r.op == "batched" and "64" in (r.sizes["k"], r.sizes["n"])]
    return float(np.mean(rates)) / (_of(MEASURED_ON).bf16 or 1.0)


def _of(name: str) -> Gpu:
    gpu = gpu_of(name)
    assert gpu is not None  # the table of GPUs has it
    return gpu


def _known(precision: str) -> str:
    """fp16 was not measured apart: it is as fast as bf16; smaller numbers are scaled from it."""
    return precision if precision in ("tf32", "fp32") else "bf16"


def _is_square(row: Row) -> bool:
    return row.sizes["m"] == row.sizes["n"] == row.sizes["k"]


def _where(**sizes: str) -> Callable[[Row], bool]:
    return lambda row: sizes.items() <= row.sizes.items()


def _curve(op: str, precision: str, fits: Callable[[Row], bool]) -> list[tuple[float, float]]:
    """FLOPs, and the rate that they were done at."""
    matching = (r for r in rows() if r.op == op and r.precision == precision and fits(r))
    return sorted((r.flops, r.flops / r.us / 1e6) for r in matching)


def _at(gpu: Gpu, curve: list[tuple[float, float]], flops: float, precision: str) -> Rate | None:
    scale = _scale(gpu, precision)
    return None if scale is None or not curve else Rate(_interpolated(curve, flops) * scale, gpu.name != MEASURED_ON)


def _interpolated(curve: list[tuple[float, float]], at: float) -> float:
    size, rate = (np.log([pair[i] for pair in curve]) for i in range(2))
    return float(np.exp(np.interp(np.log(max(at, 1.0)), size, rate)))


def _scale(gpu: Gpu, precision: str) -> float | None:
    """The ratio of this GPU's peak to the measured one's, of numbers that both have."""
    wanted: Precision = "bf16" if precision not in ("tf32", "fp32", "fp16", "fp8", "int8") else precision  # type: ignore[assignment]
    own = gpu.half if wanted in ("bf16", "fp16") else gpu.rate(wanted)
    theirs = _of(MEASURED_ON).rate("bf16" if wanted in ("bf16", "fp16", "fp8", "int8") else wanted)
    return None if own is None or theirs is None else own / theirs
