"""In which numbers an op computes, and which peak of the GPU that is."""

from __future__ import annotations

from typing import Any

from stepscope.model.gpus import Gpu, Precision

_TYPES: dict[str, Precision] = {
    "double": "fp64",
    "float": "fp32",
    "c10::half": "fp16",
    "c10::bfloat16": "bf16",
    "signed char": "int8",
    "unsigned char": "int8",
    "char": "int8",
}


def precision_of(types: list[Any]) -> str | None:
    """The precision of an op by the types of its arguments: that of the narrowest tensor, since wider ones (a bias, a
    sum) are added to. `complex` where it is; None where no type says."""
    precisions = [p for t in types if isinstance(t, str) and (p := _one(t)) is not None]
    return min(precisions, key=_WIDTH.index, default=None)


_WIDTH = ("complex", "fp4", "fp8", "int8", "bf16", "fp16", "fp32", "fp64")


def _one(text: str) -> str | None:
    lower = text.lower()
    if "complex" in lower:
        return "complex"
    if "float8" in lower:
        return "fp8"
    if "float4" in lower:
        return "fp4"
    return _TYPES.get(lower)


def peak(gpu: Gpu, precision: str, tensor_cores: bool) -> tuple[Precision, float] | None:
    """The rate that bounds products of a precision, 10¹² a second, and what it is a rate of.

    fp32 on NVIDIA's tensor cores is TF32; AMD's matrix cores multiply fp32 itself. Where tensor cores know fp64, they
    bound it. A precision that the GPU has no rate for is bounded by the next wider one that it has.
    """
    order: tuple[Precision, ...] = ("fp4", "fp8", "int8", "bf16", "fp16", "tf32", "fp32", "fp64")
    if precision == "fp64":
        rate = gpu.rate("fp64_tensor") if gpu.vendor == "nvidia" else None
        return ("fp64_tensor", rate) if rate else _first(gpu, ("fp64",))
    if precision == "fp32":
        return _first(gpu, ("tf32", "fp32") if tensor_cores and gpu.vendor == "nvidia" else ("fp32",))
    if precision not in order:
        return None
    at = order.index(precision)
    # bf16 and fp16 stand for each other; int8 is no wider than fp8
    return _first(gpu, (order[at], *(("fp16",) if precision == "bf16" else ()), *order[at:]))


def _first(gpu: Gpu, names: tuple[Precision, ...]) -> tuple[Precision, float] | None:
    return next(((name, rate) for name in names if (rate := gpu.rate(name)) is not None), None)
