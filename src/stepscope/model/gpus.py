"""What a GPU can do, by the name that traces give it: the one place that knows models of GPUs.

Peak rates are dense (without sparsity), in 10¹² operations a second, at the boost clock, and the bandwidth of memory is
in 10⁹ bytes a second, as the vendors' data sheets and white papers have them: NVIDIA's for P100, V100, T4, A100, A40,
A30, A10, L4, L40, L40S, H100, H200, H20, HGX B200 and the RTX cards, and its GA102 and Ada white papers for GeForce
(half precision with fp32 accumulation, as PyTorch asks for: GeForce has half the rate for that); AMD's for MI100,
MI210, MI250X (one of its two dies, which are two devices), MI300X, MI325X and MI355X. A rate of None is a precision
that the tensor (AMD: matrix) cores do not have: Volta and Turing know fp16 alone, Pascal has no such cores.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Gpu:
    """A model: how many multiprocessors (AMD: compute units) it has, and its peak rates."""

    pattern: str
    units: int
    fp32: float
    tf32: float | None
    fp16: float | None
    bf16: float | None
    gbps: float
    vendor: str = "nvidia"

    @property
    def half(self) -> float | None:
        """The rate of 16-bit products, of whichever kind it has."""
        return self.bf16 or self.fp16

    @property
    def tensor_cores(self) -> bool:
        return self.half is not None


#: The first that matches a name counts.
GPUS = (
    Gpu(r"\bG?B[23]00\b", 148, 75.0, 1100.0, 2250.0, 2250.0, 8000.0),
    Gpu(r"\bH100 PCIe", 114, 51.0, 378.0, 756.0, 756.0, 2000.0),
    Gpu(r"\bH100 NVL", 132, 60.0, 417.5, 835.5, 835.5, 3900.0),
    Gpu(r"\bH20\b", 78, 44.0, 74.0, 148.0, 148.0, 4000.0),
    Gpu(r"\bG?H200\b", 132, 67.0, 494.5, 989.5, 989.5, 4800.0),
    Gpu(r"\bH[18]00\b", 132, 67.0, 494.5, 989.5, 989.5, 3350.0),
    Gpu(r"\bA[18]00\b.*80GB", 108, 19.5, 156.0, 312.0, 312.0, 2039.0),
    Gpu(r"\bA[18]00\b", 108, 19.5, 156.0, 312.0, 312.0, 1555.0),
    Gpu(r"\bA40\b", 84, 37.4, 74.8, 149.7, 149.7, 696.0),
    Gpu(r"\bA30\b", 56, 10.3, 82.0, 165.0, 165.0, 933.0),
    Gpu(r"\bA10G?\b", 72, 31.2, 62.5, 125.0, 125.0, 600.0),
    Gpu(r"\bL40S\b", 142, 91.6, 183.0, 362.0, 362.0, 864.0),
    Gpu(r"\bL40\b", 142, 90.5, 90.5, 181.0, 181.0, 864.0),
    Gpu(r"\bL4\b", 58, 30.3, 60.0, 121.0, 121.0, 300.0),
    Gpu(r"RTX 6000 Ada", 142, 91.1, 182.1, 364.2, 364.2, 960.0),
    Gpu(r"RTX 5000 Ada.*Laptop", 76, 42.6, 85.2, 170.4, 170.4, 576.0),
    Gpu(r"RTX 5000 Ada", 100, 65.3, 130.6, 261.1, 261.1, 576.0),
    Gpu(r"RTX A6000", 84, 38.7, 77.4, 154.8, 154.8, 768.0),
    Gpu(r"RTX 5090", 170, 104.8, 104.8, 209.5, 209.5, 1792.0),
    Gpu(r"RTX 4090", 128, 82.6, 82.6, 165.2, 165.2, 1008.0),
    Gpu(r"RTX 4080", 76, 48.7, 48.7, 97.5, 97.5, 717.0),
    Gpu(r"RTX 3090", 82, 35.6, 35.6, 71.0, 71.0, 936.0),
    Gpu(r"RTX 3080", 68, 29.8, 29.8, 59.5, 59.5, 760.0),
    Gpu(r"RTX 3060", 28, 12.7, 12.7, 25.5, 25.5, 360.0),
    Gpu(r"RTX 2080 Ti", 68, 13.4, None, 53.8, None, 616.0),
    Gpu(r"\bT4\b", 40, 8.1, None, 65.0, None, 320.0),
    Gpu(r"\bV100|TITAN V\b", 80, 15.7, None, 125.0, None, 900.0),
    Gpu(r"\bG?P100\b", 56, 10.6, None, None, None, 732.0),
    Gpu(r"MI355X", 256, 157.3, None, 2516.6, 2516.6, 8000.0, "amd"),
    Gpu(r"MI325X", 304, 163.4, 653.7, 1307.4, 1307.4, 6000.0, "amd"),
    Gpu(r"MI300X", 304, 163.4, 653.7, 1307.4, 1307.4, 5300.0, "amd"),
    Gpu(r"MI250X", 110, 23.9, None, 191.5, 191.5, 1638.0, "amd"),
    Gpu(r"MI2[15]0", 104, 22.6, None, 181.0, 181.0, 1638.0, "amd"),
    Gpu(r"MI100", 120, 23.1, None, 184.6, 92.3, 1229.0, "amd"),
)
#: Older models: nothing is known of them but that they have no tensor cores.
_WITHOUT = r"\b(Tesla )?(K\d0|M\d0|P4|P40|GTX|TITAN Xp?)\b|Quadro [MPK]\d|GeForce 9"


@cache
def gpu_of(name: str | None) -> Gpu | None:
    """The model of this name; None where it is not known."""
    return next((gpu for gpu in GPUS if name and re.search(gpu.pattern, name, re.IGNORECASE)), None)


@cache
def has_tensor_cores(name: str | None) -> bool | None:
    """Whether a GPU of this name has tensor (matrix) cores; None where that is not known."""
    known = gpu_of(name)
    if known is not None:
        return known.tensor_cores
    return False if name and re.search(_WITHOUT, name, re.IGNORECASE) else None


@cache
def is_amd(name: str | None) -> bool:
    return bool(name and re.search(r"\bAMD\b|Instinct|Radeon|\bMI\d{3}", name))


@dataclass(frozen=True)
class Gain:
    """The time of an fp32 product on tensor cores, as a part of what it takes without: the least that it gains, what is
    usual, and the most; and the reason for each."""

    low: float
    usual: float
    high: float
    why: dict[str, str]


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
    # TF32 needs no other numbers in memory: it is what most switch on first. Where it is no faster, half precision is.
    fast, word = (gpu.tf32, "TF32") if gpu.tf32 and gpu.tf32 > gpu.fp32 else (gpu.half, "half precision")
    usual = min(1.0, gpu.fp32 / (fast * reach))
    high = gpu.fp32 / gpu.half
    return Gain(
        low=max(usual, 1 / careful),
        usual=usual,
        high=min(high, usual),
        why={
            "low": f"{careful:g} times as fast: products that are small or bound by memory gain no more",
            "usual": f"{word} at {100 * reach:.0f} % of the ratio of peak rates, {fast:g} to {gpu.fp32:g} TFLOP/s",
            "high": f"half precision at its peak, {gpu.half:g} TFLOP/s",
        },
    )
