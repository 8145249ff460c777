"""torch's CUPTI backend (`CuspyConfig`, torch 2.15), and what a program noted of the nodes of its CUDA graphs."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Collection
from typing import Any

from stepscope.annotate.safety import harmless

#: What it samples of the GPU in one pass.
_METRICS = (
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed",
    "dram__read_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__write_throughput.avg.pct_of_peak_sustained_elapsed",
)


def configuration(profiler: Any, wanted: Collection[str]) -> Any:
    """The configuration of torch's CUPTI backend."""
    if not hasattr(profiler, "CuspyConfig"):
        asked = ",".join(sorted(wanted))
        raise RuntimeError(f"--with {asked} needs torch 2.15 or newer with cupti-python (torch.profiler.CuspyConfig)")
    clocks, graph = "clocks" in wanted, "graph" in wanted
    configs = [profiler.CuspyConfig(enable_environment_counters=clocks, enable_graph_dependencies=graph)]
    if "pm" in wanted:
        configs.append(profiler.PerformanceMetricsConfig(list(_METRICS)))
    return profiler.ProfilerActivityConfig(profiler_configs=configs)


def export(profiler: Any, file: str) -> None:
    """Write the trace, with what the program noted of the nodes of its graphs (torch.cuda.graph_annotations)."""
    module = sys.modules.get("torch.cuda._graph_annotations")
    harmless(stacks_as_notes)(module)
    notes = graph_notes(module)
    takes = "cuda_graph_annotations" in inspect.signature(profiler.export_chrome_trace).parameters
    profiler.export_chrome_trace(file, **({"cuda_graph_annotations": notes} if notes and takes else {}))
    if not os.path.exists(file):  # noqa: PTH110
        raise RuntimeError("torch's CUPTI backend wrote nothing: is cupti-python installed, and CUPTI free?")


def stacks_as_notes(module: Any) -> None:
    """Add the stacks of nodes to their annotations: torch's CUPTI backend writes those by itself, and not stacks."""
    if not hasattr(module, "record_node_annotation") or not hasattr(module, "get_kernel_py_stacks"):
        return
    for node, stack in dict(module.get_kernel_py_stacks()).items():
        module.record_node_annotation(node, {"stack": stack})  # a stack that the program gave stays


def graph_notes(module: Any) -> dict[int, list[dict[str, Any]]]:
    """By node: its annotation, with the stack of its launch where torch recorded that, too."""
    if module is None or not hasattr(module, "get_kernel_annotations"):
        return {}
    stacks = dict(module.get_kernel_py_stacks()) if hasattr(module, "get_kernel_py_stacks") else {}
    annotated = dict(module.get_kernel_annotations())
    notes = {node: {k: v for one in noted for k, v in one.items()} for node, noted in annotated.items()}
    for node, stack in stacks.items():
        notes.setdefault(node, {}).setdefault("stack", stack)
    return {node: [note] for node, note in notes.items()}
