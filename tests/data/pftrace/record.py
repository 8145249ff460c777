"""How the traces beside this file were made: torch 2.15.0 with cupti-python 13.4, on a machine without a GPU.

What the host did is real. What the GPU did is made up here, in the columns that torch's CUPTI backend hands to its own
writers: torch needs a GPU to fill them. Both writers, of JSON and of .pftrace, are torch's.
"""

# ruff: noqa: E501
from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.profiler._cuspy import trace

here = Path(sys.argv[1])
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
with profile(
    activities=[ProfilerActivity.CPU], record_shapes=True, schedule=schedule(wait=1, warmup=1, active=2)
) as prof:
    for _ in range(4):
        with record_function("forward"):
            loss = model(torch.randn(4, 16)).sum()
        loss.backward()
        optimizer.step()
        prof.step()
prof.export_chrome_trace(str(here / "cpu.json"))
data = json.loads((here / "cpu.json").read_text())
data.pop("traceName", None)
(here / "cpu.json").write_text(json.dumps(data))


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


ops = [e for e in data["traceEvents"] if e.get("cat") == "cpu_op"]
pid, tid = ops[0]["pid"], ops[0]["tid"]
t0 = data["baseTimeNanoseconds"] + int(ops[0]["ts"] * 1000)
names = ["void gemm<float>(int)"] * 4 + [
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "void add(float*)",
]
said = '{"Collective name":"allreduce","In msg nelems":1024,"Out msg nelems":1024,"Group size":2,"dtype":"Float","Process Group Name":"0","Process Group Ranks":"[0, 1]"}'
n, g = len(names), 3
starts = np.concatenate([t0 + 20_000 * np.arange(1, n + 1), t0 + 200_000 + 10_000 * np.arange(g)])
kernel = {
    "start_ns": starts, "end_ns": starts + 7_003, "name": np.array([*names, "first", "second", "third"], dtype=object),
    "correlation_id": np.concatenate([np.arange(1, n + 1), np.full(g, 20)]), "stream_id": np.full(n + g, 7),
    "graph_id": np.array([0] * n + [5] * g), "graph_node_id": np.array([0] * n + [(5 << 32) + k for k in (1, 2, 3)]),
    "metadata": np.array([None] * 4 + [said] + [None] * (1 + g), dtype=object),
    "grid_x": np.full(n + g, 132), "grid_y": np.full(n + g, 2), "grid_z": np.full(n + g, 1), "block_x": np.full(n + g, 256),
    "block_y": np.full(n + g, 1), "block_z": np.full(n + g, 1), "registers_per_thread": np.full(n + g, 64),
    "dynamic_shared_memory": np.full(n + g, 1024), "static_shared_memory": np.zeros(n + g, int), "priority": np.zeros(n + g, int),
    "queued": np.zeros(n + g, int), "channel": np.zeros(n + g, int), "channel_type": np.zeros(n + g, int),
    "device_id": np.zeros(n + g, int), "context_id": np.ones(n + g, int), "annotation": np.array([None] * (n + g), dtype=object),
    "logical_lane": np.full(n + g, 7), "lane_name": np.array([None] * (n + g), dtype=object), "external_id": np.zeros(n + g, int),
}  # fmt: skip
one = {
    "device_id": ints(0),
    "context_id": ints(1),
    "graph_id": ints(0),
    "graph_node_id": ints(0),
    "channel": ints(0),
    "channel_type": ints(0),
    "annotation": np.array([None], dtype=object),
    "lane_name": np.array([None], dtype=object),
    "external_id": ints(0),
}
memcpy = {
    "start_ns": ints(t0 + 300_000),
    "end_ns": ints(t0 + 310_000),
    "stream_id": ints(9),
    "logical_lane": ints(9),
    "correlation_id": ints(30),
    "bytes": ints(4096),
    "copy_kind": ints(1),
    "src_kind": ints(1),
    "dst_kind": ints(3),
    "flags": ints(0),
    **one,
}
memset = {
    "start_ns": ints(t0 + 320_000),
    "end_ns": ints(t0 + 321_000),
    "stream_id": ints(7),
    "logical_lane": ints(7),
    "correlation_id": ints(31),
    "bytes": ints(64),
    "value": ints(0),
    "memory_kind": ints(3),
    "flags": ints(0),
    **one,
}
launches = np.concatenate(
    [t0 + 20_000 * np.arange(1, n + 1) - 9_000, ints(t0 + 190_000, t0 + 290_000, t0 + 315_000, t0 + 330_000)]
)
runtime = {
    "start_ns": launches, "end_ns": launches + 3_000, "process_id": np.full(n + 4, pid), "thread_id": np.full(n + 4, tid),
    "correlation_id": np.concatenate([np.arange(1, n + 1), ints(20, 30, 31, 40)]), "cbid": np.concatenate([np.full(n, 211), ints(311, 41, 51, 165)]),
}  # fmt: skip
sync = {
    "start_ns": ints(t0 + 330_500, t0 + 189_000),
    "end_ns": ints(t0 + 332_000, t0 + 189_500),
    "context_id": ints(1, 1),
    "stream_id": np.array([0xFFFFFFFF, 9]),
    "sync_type": ints(4, 2),
    "correlation_id": ints(40, 41),
    "cuda_event_sync_id": ints(0, 77),
    "cuda_event_id": ints(0, 5),
}
event = {
    "start_ns": ints(0),
    "cuda_event_sync_id": ints(77),
    "correlation_id": ints(39),
    "context_id": ints(1),
    "device_id": ints(0),
    "stream_id": ints(7),
    "cuda_event_id": ints(5),
}
power = {
    "start_ns": t0 + np.arange(4) * 50_000,
    "environment_kind": ints(3, 2, 1, 3),
    "data": np.array([350_000, 61, 1980 | (2619 << 32), 360_000], dtype=np.uint64),
    "device_id": np.zeros(4, int),
}
sampled = {
    "start_ns": t0 + np.arange(3) * 1000,
    "device_id": np.zeros(3, int),
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed": np.array([10.5, 20.0, 99.0]),
}
window = {
    "columns": {"kernel": kernel, "gpu_memcpy": memcpy, "gpu_memset": memset, "cuda_runtime": runtime, "cuda_sync": sync, "cuda_event": event, "environment": power, "pm_sampling": sampled},
    "graph_deps": {(5 << 32) + 2: [(5 << 32) + 1], (5 << 32) + 3: [(5 << 32) + 2]},
}  # fmt: skip
trace.merge_trace_window_into_chrome_trace(here / "cpu.json", here / "cpu.pftrace", {"columns": {}})
trace.merge_trace_window_into_chrome_trace(here / "cpu.json", here / "gpu.pftrace", window)
trace.merge_trace_window_into_chrome_trace(here / "cpu.json", here / "gpu.json", window)
for name in ("cpu.json", "gpu.json"):
    raw = (here / name).read_bytes()
    data = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    data.pop("traceName", None)  # where it was written
    with gzip.GzipFile(here / f"{name}.gz", "wb", mtime=0) as file:
        file.write(json.dumps(data).encode())
    (here / name).unlink()
