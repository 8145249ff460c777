"""Steps by hand: kernels with their lengths (µs) and blocks, launched one behind the other, by default on an H200."""

from __future__ import annotations

from typing import Any

from fake import call, make, nvtx, op
from stepscope.model.profile import Profile

US = 1000
#: A kernel: its name, how long it runs, its blocks.
Kernel = tuple[str, int, int]
PRODUCT, NORM, ATTENTION = "nvjet_sm90_tst_128x64_TNT", "vectorized_layer_norm_kernel", "flash_fwd_kernel"
GATHER = "at::native::indexSelectLargeIndex"
ADD = "at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >"
FILL = "at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, 1> >"
FUSED_ADAM = (
    "at::native::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata<4>, "
    "at::native::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false> >"
)


def step(*passes: tuple[list[Kernel], int], apart: int = 3, waits_at: tuple[int, ...] = ()) -> dict[str, Any]:
    """Passes, each of kernels and the thread that launches them every `apart` µs; after some the host waits."""
    ops: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    at = launched = 0
    for kernels, tid in passes:
        for name, long, blocks in kernels:
            launched += apart
            calls.append(call(launched * US, (launched + 2) * US, id=len(calls) + 1, tid=tid))
            at = max(at, launched + 3)
            more = {"grid_x": blocks, "grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}
            ops.append(op(at * US, (at + long) * US, name, call=len(calls), **more))
            at += long
            if len(ops) in waits_at:
                calls.append(call((launched + 2) * US, (at + 5) * US, id=len(calls) + 1, name="cudaStreamSynchronize"))
                launched = at + 5
    return {"ops": ops, "calls": calls, "ranges": [nvtx(0, (max(at, launched) + 10) * US, "step 0")]}


def job(*passes: tuple[list[Kernel], int], gpu: str = "NVIDIA H200", **more: Any) -> Profile:
    return make([{"proc": 0, "pid": 400, "device": 0, "gpu": gpu, "rank": 0}], **step(*passes, **more))
