"""How graphs.json.gz and graphs.pftrace were made: torch 2.15.0 with cupti-python 13.4, on a machine without a GPU.

As record.py beside it: what the host did is real, what the GPUs did is made up in the columns that torch's CUPTI
backend hands to its own writers. Two GPUs; two replays of a graph on the first, whose nodes are annotated, with a record
of an event and a callback of the host among them; clocks, power and sampled metrics of both.
"""

# ruff: noqa: E501
from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.profiler._cuspy import trace

here = Path(sys.argv[1])
model = torch.nn.Linear(16, 16)
with profile(activities=[ProfilerActivity.CPU]) as prof:
    for _ in range(3):
        with record_function("step"):
            model(torch.randn(4, 16)).sum().backward()
prof.export_chrome_trace(str(here / "cpu.json"))
data = json.loads((here / "cpu.json").read_text())
ops = [e for e in data["traceEvents"] if e.get("cat") == "cpu_op"]
pid, tid = ops[0]["pid"], ops[0]["tid"]
t0 = data["baseTimeNanoseconds"] + int(ops[0]["ts"] * 1000)
us = 1000


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def texts(*values: str | dict | None) -> np.ndarray:
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


#: Nodes of graph 5: stream, start and length within a replay, of kernels; two are side by side on streams of their own.
NODES = {1: (21, 0, 10), 2: (22, 11, 20), 3: (23, 11, 5), 6: (21, 40, 8)}
STACK = "model.py:31:forward\ntrain.py:12:step"
NOTES = {
    1: {"name": "layers.0.mlp", "stack": STACK},
    2: {"name": "layers.1.attention", "stack": "model.py:44:forward\ntrain.py:12:step"},
    3: None,
    6: {"name": "layers.1.attention", "autograd_phase": "backward"},
}
REPLAYS = {50: 100 * us, 51: 300 * us}
rows = [(c, at, node) for c, at in REPLAYS.items() for node in NODES]
eager = [(7, 20 * us, 9 * us, 0), (7, 40 * us, 9 * us, 1)]  # stream, start, length, device: one on each GPU
n, e = len(rows), len(eager)
count = n + e
starts = np.concatenate(
    [t0 + ints(*(at + NODES[k][1] * us for _, at, k in rows)), t0 + ints(*(s for _, s, _, _ in eager))]
)
lengths = np.concatenate([ints(*(NODES[k][2] * us for _, _, k in rows)), ints(*(d for _, _, d, _ in eager))])
streams = ints(*(NODES[k][0] for _, _, k in rows), *(s for s, _, _, _ in eager))
zeros = np.zeros(count, int)
kernel = {
    "start_ns": starts, "end_ns": starts + lengths, "name": texts(*(f"node{k}" for _, _, k in rows), "eager0", "eager1"),
    "correlation_id": ints(*(c for c, _, _ in rows), 1, 2), "stream_id": streams,
    "graph_id": ints(*[5] * n, 0, 0), "graph_node_id": ints(*((5 << 32) + k for _, _, k in rows), 0, 0),
    "metadata": texts(*[None] * count), "annotation": texts(*(NOTES[k] for _, _, k in rows), None, None),
    "grid_x": zeros + 132, "grid_y": zeros + 1, "grid_z": zeros + 1, "block_x": zeros + 256, "block_y": zeros + 1, "block_z": zeros + 1,
    "registers_per_thread": zeros + 64, "dynamic_shared_memory": zeros, "static_shared_memory": zeros, "priority": zeros,
    "queued": zeros, "channel": zeros, "channel_type": zeros, "device_id": ints(*[0] * n, 0, 1), "context_id": ints(*[1] * n, 1, 2),
    "logical_lane": streams, "lane_name": texts(*[None] * count), "external_id": zeros,
}  # fmt: skip


def nodes(node: int, at: int, length: int, **more: np.ndarray) -> dict[str, np.ndarray]:
    """A node without work, in both replays."""
    two = np.zeros(2, int)
    begin = t0 + ints(*(r + at * us for r in REPLAYS.values()))
    return {
        "start_ns": begin, "end_ns": begin + length * us, "device_id": two, "context_id": two + 1, "stream_id": two + 21,
        "correlation_id": ints(*REPLAYS), "graph_id": two + 5, "graph_node_id": two + (5 << 32) + node,
        "annotation": texts(None, None), "logical_lane": two + 21, "lane_name": texts(None, None), "external_id": two, **more,
    }  # fmt: skip


one = {
    "device_id": ints(0),
    "context_id": ints(1),
    "graph_id": ints(0),
    "graph_node_id": ints(0),
    "channel": ints(0),
    "channel_type": ints(0),
    "annotation": texts(None),
    "lane_name": texts(None),
    "external_id": ints(0),
}
memcpy = {
    "start_ns": ints(t0 + 60 * us), "end_ns": ints(t0 + 65 * us), "stream_id": ints(7), "logical_lane": ints(7), "correlation_id": ints(3),
    "bytes": ints(4096), "copy_kind": ints(1), "src_kind": ints(2), "dst_kind": ints(3), "flags": ints(0), **one,
}  # fmt: skip
calls = {1: (10, 211), 2: (30, 211), 3: (55, 41), 50: (80, 311), 51: (85, 311)}
begun = t0 + ints(*(at * us for at, _ in calls.values()))
runtime = {
    "start_ns": begun, "end_ns": begun + 3 * us, "process_id": np.full(len(calls), pid), "thread_id": np.full(len(calls), tid),
    "correlation_id": ints(*calls), "cbid": ints(*(cbid for _, cbid in calls.values())),
}  # fmt: skip
#: Every 50 us: the clock of GPU 0 falls to 1,200 MHz in the second replay; power in milliwatts.
at = np.arange(10) * 50 * us
clock = np.where(at < 250 * us, 1980, 1200).astype(np.uint64) | (np.uint64(2619) << np.uint64(32))
environment = {
    "start_ns": t0 + np.concatenate([at, at, at]),
    "environment_kind": np.repeat([1, 3, 1], 10),
    "data": np.concatenate([clock, np.full(10, 500_000, np.uint64), np.full(10, 1755, np.uint64)]),
    "device_id": np.repeat([0, 0, 1], 10),
}
pm = {
    "start_ns": t0 + np.concatenate([at, at]), "device_id": np.repeat([0, 1], 10),
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed": np.concatenate([np.linspace(10, 100, 10), np.zeros(10)]),
    "dram__read_throughput.avg.pct_of_peak_sustained_elapsed": np.full(20, 12.5),
}  # fmt: skip
window = {
    "columns": {
        "kernel": kernel, "gpu_memcpy": memcpy, "cuda_runtime": runtime, "environment": environment, "pm_sampling": pm,
        "graph_event_node": nodes(4, 32, 0), "graph_host_node": nodes(5, 33, 3, process_id=np.full(2, pid), thread_id=np.full(2, tid)),
    },
    # 2 and 3 come after 1; an event (4) after both, a callback (5) after that, and 6 after the callback.
    "graph_deps": {(5 << 32) + k: [(5 << 32) + p for p in after] for k, after in {2: [1], 3: [1], 4: [2, 3], 5: [4], 6: [5]}.items()},
}  # fmt: skip
trace.merge_trace_window_into_chrome_trace(here / "cpu.json", here / "graphs.pftrace", window)
trace.merge_trace_window_into_chrome_trace(here / "cpu.json", here / "graphs.json", window)
data = json.loads((here / "graphs.json").read_text())
for key in ("traceName", "host_name"):  # where it was written
    data.pop(key, None)
with gzip.GzipFile(here / "graphs.json.gz", "wb", mtime=0) as file:
    file.write(json.dumps(data).encode())
for name in ("cpu.json", "graphs.json"):
    (here / name).unlink()
