"""Megatron-LM: its parallel_state knows the mesh.

Its `--profile` calls cudaProfilerStart and Stop itself: hooks then leave the profiler to it, and only make the stop a
common one. Its steps are found by the optimizers within its own (`MegatronOptimizer` is none of torch's).
"""

from __future__ import annotations

import sys
from typing import Any

#: The label's axis → the middle of the names of parallel_state's functions.
_AXES = {
    "pp": "pipeline_model_parallel", "dp": "data_parallel", "cp": "context_parallel", "ep": "expert_model_parallel",
    "tp": "tensor_model_parallel",
}  # fmt: skip


def places() -> dict[str, tuple[int, int]]:
    """By axis; empty before Megatron has made its groups."""
    state: Any = sys.modules["megatron.core.parallel_state"]
    if not state.model_parallel_is_initialized():
        return {}
    places = {}
    for axis, name in _AXES.items():
        rank, size = (getattr(state, f"get_{name}_{what}", None) for what in ("rank", "world_size"))
        if rank is not None and size is not None:
            places[axis] = (int(rank()), int(size()))
    return places
