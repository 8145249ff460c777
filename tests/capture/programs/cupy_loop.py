"""CuPy, with a range of its own around what is worth recording; no torch in it."""

import cupy
from cupy.cuda import nvtx

a = cupy.random.rand(2048, 2048, dtype=cupy.float32)
for _ in range(3):
    a = cupy.tanh(a @ a / 2048)
cupy.cuda.runtime.deviceSynchronize()
nvtx.RangePush("measured")
for i in range(5):
    nvtx.RangePush(f"step {i}")
    a = cupy.tanh(a @ a / 2048)
    cupy.cuda.runtime.deviceSynchronize()
    nvtx.RangePop()
nvtx.RangePop()
