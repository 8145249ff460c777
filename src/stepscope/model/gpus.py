"""What a GPU can do, by the name that traces give it: the one place that knows models of GPUs.

The figures and their sources are data, `gpus.toml`, read when the first name is looked up. A rate of None is a
precision that the tensor (AMD: matrix) cores do not have: Volta and Turing know fp16 alone, Pascal has no such cores.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

#: Of numbers that are multiplied. `fp64` and `fp32` are on vector units, all others on tensor (matrix) cores.
Precision = Literal["fp64", "fp64_tensor", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


@dataclass(frozen=True)
class Gpu:
    """A model: how many multiprocessors (AMD: compute units) it has, its clock, memory and dense peak rates, and where
    they are stated. Rates are in 10¹² operations a second, memory in 10⁹ bytes (a second)."""

    name: str
    pattern: str
    units: int
    mhz: int
    gbps: float
    gb: float
    rates: Mapping[str, float]
    source: str
    url: str = ""
    #: Where the figures were read again by whoever wrote them down; empty: nowhere, they are unconfirmed.
    seen: str = ""
    note: str = ""
    vendor: str = "nvidia"
    #: What its links to other GPUs of the node carry in one direction, 10⁹ bytes a second, and what they are.
    link_gbps: float | None = None
    link: str = ""
    #: NVIDIA's compute capability, by which `chips` has what a multiprocessor holds.
    chip: str = ""

    def rate(self, precision: Precision) -> float | None:
        """The dense peak of a precision, 10¹² operations a second."""
        return self.rates.get(precision)

    @property
    def fp32(self) -> float:
        return self.rates["fp32"]

    @property
    def tf32(self) -> float | None:
        return self.rates.get("tf32")

    @property
    def fp16(self) -> float | None:
        return self.rates.get("fp16")

    @property
    def bf16(self) -> float | None:
        return self.rates.get("bf16")

    @property
    def half(self) -> float | None:
        """The rate of 16-bit products, of whichever kind it has."""
        return self.bf16 or self.fp16

    @property
    def tensor_cores(self) -> bool:
        return self.half is not None

    @property
    def cited(self) -> str:
        """The source as a sentence can name it."""
        return f"{self.source}{'' if self.seen else ' (unconfirmed)'}"


@dataclass(frozen=True)
class Chip:
    """What one multiprocessor holds at once; `reserved`: shared memory that each block takes besides its own."""

    name: str
    warps: int
    blocks: int
    shared: int
    reserved: int


@cache
def _tables() -> Mapping[str, Any]:
    return tomllib.loads(files("stepscope.model").joinpath("gpus.toml").read_text("utf-8"))


@cache
def gpus() -> tuple[Gpu, ...]:
    """Every model, in the order in which patterns are tried."""
    return tuple(Gpu(**row) for row in _tables()["gpu"])


@cache
def chip_of(name: str | None) -> Chip | None:
    """The multiprocessor of a GPU of this name; None where it is not known."""
    gpu = gpu_of(name)
    rows = {row["name"]: Chip(**row) for row in _tables()["chip"]}
    return rows.get(gpu.chip) if gpu is not None else None


#: Older models: nothing is known of them but that they have no tensor cores.
_WITHOUT = r"\b(Tesla )?(K\d0|M\d0|P4|P40|GTX|TITAN Xp?)\b|Quadro [MPK]\d|GeForce 9"


@cache
def gpu_of(name: str | None) -> Gpu | None:
    """The model of this name; None where it is not known."""
    return next((gpu for gpu in gpus() if name and re.search(gpu.pattern, name, re.IGNORECASE)), None)


@cache
def has_tensor_cores(name: str | None) -> bool | None:
    """Whether a GPU of this name has tensor (matrix) cores; None where that is not known."""
    gpu = gpu_of(name)
    if gpu is not None:
        return gpu.tensor_cores
    return False if name and re.search(_WITHOUT, name, re.IGNORECASE) else None


@cache
def is_amd(name: str | None) -> bool:
    return bool(name and re.search(r"\bAMD\b|Instinct|Radeon|\bMI\d{3}", name))


@dataclass(frozen=True)
class Gain:
    """The time of an fp32 product on tensor cores, as a part of what it takes without: the least that it gains, what is
    usual, and the most; and the reason for each. `tf32`: the same in TF32, where that is faster than fp32."""

    low: float
    usual: float
    high: float
    why: dict[str, str]
    tf32: float | None = None


def tensor_core_gain(name: str | None, careful: float, reach: float) -> Gain | None:
    """What fp32 products gain on the tensor cores of this GPU, bounded by peak rates; None where it has none.

    `careful`: how many times as fast a product surely is, where nothing but its name is known. `reach`: the part of the
    ratio of peak rates that products reach.
    """
    if has_tensor_cores(name) is False:
        return None
    gpu = gpu_of(name)
    if gpu is None or gpu.half is None:
        text = "the trace does not name a known GPU"
        return Gain(1.0, 1 / careful, 1 / 8, {"low": "a product may be bound by memory", "usual": text, "high": text})
    # Half precision is what training uses; TF32, which needs no other numbers in memory, is half as fast where it is.
    usual = min(1.0, gpu.fp32 / (gpu.half * reach))
    tf32 = gpu.fp32 / (gpu.tf32 * reach) if gpu.tf32 else 1.0
    high = gpu.fp32 / gpu.half
    share = f"{100 * reach:.0f} % of the ratio of peak rates"
    return Gain(
        low=max(usual, 1 / careful),
        usual=usual,
        high=min(high, usual),
        why={
            "low": f"{careful:g} times as fast: products that are small or bound by memory gain no more",
            "usual": f"half precision at {share}, {gpu.half:g} to {gpu.fp32:g} TFLOP/s",
            "high": f"half precision at its peak, {gpu.half:g} TFLOP/s",
        },
        tf32=tf32 if tf32 < 1.0 else None,
    )
