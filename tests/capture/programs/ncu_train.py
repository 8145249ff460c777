"""A GPU-bound training loop whose MLP goes through a copy that reads with a stride: tests/data/ncu/train is of it.

By itself it runs a few steps, for `capture ncu`; with the name of a file it writes torch.profiler's trace, and times
steps without the profiler.
"""

import sys
import time

import cupy as cp
import torch
from torch import nn

SRC = r"""
extern "C" __global__ void scatter_rows(const unsigned short* a, unsigned short* c, int rows, int cols) {
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < (long)rows * cols; i += (long)gridDim.x * blockDim.x) {
    int r = i % rows, k = i / rows;
    c[(long)r * cols + k] = a[(long)r * cols + k];
  }
}
"""
scatter = cp.RawKernel(SRC, "scatter_rows")


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        rows, cols = x.numel() // x.shape[-1], x.shape[-1]
        with cp.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            scatter((2112,), (256,), (x.data_ptr(), y.data_ptr(), cp.int32(rows), cp.int32(cols)))
        return y

    @staticmethod
    def backward(ctx, g):
        return g


class Block(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.n, self.a, self.b = nn.LayerNorm(w), nn.Linear(w, 4 * w), nn.Linear(4 * w, w)

    def forward(self, x):
        return x + self.b(nn.functional.gelu(Copy.apply(self.a(self.n(x)))))


torch.manual_seed(0)
w = 4096
model = nn.Sequential(*(Block(w) for _ in range(4))).cuda().bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
x = torch.randn(8192, w, device="cuda", dtype=torch.bfloat16)


def step(n):
    torch.cuda.nvtx.range_push(f"step {n}")
    with torch.profiler.record_function(f"step {n}"):
        loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.nvtx.range_pop()


for n in range(2):
    step(n)
torch.cuda.synchronize()
if len(sys.argv) > 1:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
        for n in range(2, 6):
            step(n)
        torch.cuda.synchronize()
    prof.export_chrome_trace(sys.argv[1])
    t = time.perf_counter()
    for n in range(6, 14):
        step(n)
    torch.cuda.synchronize()
    print("step ms", (time.perf_counter() - t) / 8 * 1e3)
else:
    for n in range(2, 5):
        step(n)
    torch.cuda.synchronize()
