"""Six kernels, each bound by one thing, in steps of three layers: what tests/data/ncu/probe was measured of.

By itself it runs four steps, for `capture ncu`; with the name of a file it writes torch.profiler's trace of three.
"""

import sys

import cupy as cp

SRC = r"""
extern "C" {
__global__ void stream_triad(const float4* a, const float4* b, float4* c, long n) {
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x) {
    float4 x = a[i], y = b[i];
    c[i] = make_float4(x.x + 2.f * y.x, x.y + 2.f * y.y, x.z + 2.f * y.z, x.w + 2.f * y.w);
  }
}
__global__ void fma_chain(float* out, int rounds) {
  float v[8];
  for (int k = 0; k < 8; ++k) v[k] = threadIdx.x * 0.001f + k;
  for (int r = 0; r < rounds; ++r)
    for (int k = 0; k < 8; ++k) v[k] = fmaf(v[k], 1.0001f, 0.5f);
  float s = 0.f;
  for (int k = 0; k < 8; ++k) s += v[k];
  out[blockIdx.x * blockDim.x + threadIdx.x] = s;
}
__global__ void pointer_chase(const int* next, int* out, int hops) {
  int at = (blockIdx.x * 977 + threadIdx.x * 131) & ((1 << 24) - 1);
  for (int h = 0; h < hops; ++h) at = next[at];
  out[blockIdx.x * blockDim.x + threadIdx.x] = at;
}
__global__ void strided_read(const float* a, float* c, long n) {
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x)
    c[i] = a[i * 8];
}
__global__ void bank_conflict(float* out, int rounds) {
  __shared__ float s[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) s[i] = i * 0.5f;
  __syncthreads();
  float sum = 0.f;
  int lane = threadIdx.x & 31;
  for (int r = 0; r < rounds; ++r) sum += s[(lane * 32 + ((r + (int)sum) & 31)) & 1023];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
__global__ void almost_nothing(float* out) { out[threadIdx.x] = 1.f; }
}
"""
module = cp.RawModule(code=SRC, options=("--std=c++17",))
names = ("stream_triad", "fma_chain", "pointer_chase", "strided_read", "bank_conflict", "almost_nothing")
k = {n: module.get_function(n) for n in names}
n = 1 << 26
a, b, c = (cp.ones(n, dtype=cp.float32) for _ in range(3))
nxt = ((cp.arange(1 << 24, dtype=cp.int64) * 1103515245 + 12345) & ((1 << 24) - 1)).astype(cp.int32)
out, outi = cp.zeros(1 << 22, dtype=cp.float32), cp.zeros(1 << 20, dtype=cp.int32)


def layer():
    k["stream_triad"]((4224,), (256,), (a, b, c, cp.int64(n // 4)))
    k["fma_chain"]((1056,), (256,), (out, cp.int32(4096)))
    k["pointer_chase"]((132,), (32,), (nxt, outi, cp.int32(300)))
    k["strided_read"]((4224,), (256,), (a, c, cp.int64(n // 8)))
    k["bank_conflict"]((1056,), (256,), (out, cp.int32(600)))
    k["almost_nothing"]((1,), (32,), (out,))


def steps(count):
    for step in range(count):
        cp.cuda.nvtx.RangePush(f"step {step}")
        for i in range(3):
            cp.cuda.nvtx.RangePush(f"layer {i}")
            layer()
            cp.cuda.nvtx.RangePop()
        cp.cuda.nvtx.RangePop()
        cp.cuda.Device().synchronize()


if len(sys.argv) > 1:
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    torch.zeros(1, device="cuda")
    steps(1)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
        for s in range(3):
            with record_function(f"step {s}"):
                for _ in range(3):
                    layer()
                torch.cuda.synchronize()
    prof.export_chrome_trace(sys.argv[1])
else:
    steps(4)
