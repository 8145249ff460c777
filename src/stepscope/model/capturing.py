"""What a capture can be asked to record beyond the usual, and how hints say so: those of all commands are made here.

`capture run --with stacks` says what is wanted; `capture/wants.py` knows the profiler's options for it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Want:
    """Something that `capture run --with` takes: what it records, and how to get it without `capture run`."""

    gives: str
    by_hand: str


WANTS = {
    "stacks": Want(
        "the Python and C++ stack of every launch: `source`",
        "nsys --cudabacktrace=kernel --python-backtrace=cuda, torch.profiler with_stack=True",
    ),
    "shapes": Want(
        "torch's operators with the shapes of their inputs",
        "nsys --pytorch=autograd-shapes-nvtx, torch.profiler record_shapes=True",
    ),
    "memory": Want("every allocation on the GPU", "nsys --cuda-memory-usage=true, torch.profiler profile_memory=True"),
    "gpu-metrics": Want(
        "samples of the GPU's counters (clocks, SM and tensor activity, DRAM, NVLink): `kernels`, the report's lanes",
        "nsys --gpu-metrics-devices=all",
    ),
    "cpu": Want(
        "CPU samples, and when threads were scheduled: `idle --by thread`",
        "nsys --sample=process-tree --cpuctxsw=process-tree",
    ),
    "osrt": Want("calls of the OS that take long: `idle --by thread`", "nsys --trace=cuda,nvtx,osrt"),
    "pytorch": Want("torch's operators, passes and compiled regions", "nsys --pytorch=autograd-nvtx, torch.profiler"),
    "python-sampling": Want("samples of Python's stacks: `source`, `idle --by thread`", "nsys --python-sampling=true"),
    "gil": Want(
        "who waits for Python's lock, and samples of what has it: `idle --by thread`, `diagnose`",
        "nsys --trace=cuda,nvtx,python-gil --python-sampling=true",
    ),
    "graph": Want(
        "which node of a CUDA graph waits for which: `critical-path`",
        "torch 2.15's CuspyConfig(enable_graph_dependencies=True)",
    ),
    "clocks": Want(
        "samples of the GPU's clocks, power and temperature: `diagnose`",
        "torch 2.15's CuspyConfig(enable_environment_counters=True)",
    ),
    "pm": Want(
        "samples of SM, tensor and DRAM activity by torch: `kernels`",
        "torch 2.15's PerformanceMetricsConfig beside CuspyConfig",
    ),
    "network": Want("samples of the network cards' counters", "nsys --nic-metrics=true"),
}
_USUAL = "nsys --trace=cuda,nvtx --cuda-graph-trace=node, torch.profiler with ProfilerActivity.CPU and CUDA"


def capture_with(*wants: str) -> str:
    """The hint where a profile lacks what `--with` records; without a name, what every capture records."""
    if not wants:
        return f"capture with `stepscope capture run` (by hand: {_USUAL})"
    by_hand = "; ".join(WANTS[want].by_hand for want in wants)
    return f"capture with `stepscope capture run --with {','.join(wants)}` (by hand: {by_hand})"


def capture_by(options: str) -> str:
    """The hint where other options of `capture run` record it."""
    return f"capture with `stepscope capture run {options}`"
