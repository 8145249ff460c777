"""DeepSpeed: its groups know the mesh.

ZeRO's optimizers are none of torch's, but step one of torch's for each group of parameters: these are one step
together.
"""

from __future__ import annotations

import sys
from typing import Any

#: The label's axis → the functions of deepspeed.utils.groups that say where and how many.
_AXES = {
    "dp": ("_get_data_parallel_rank", "_get_data_parallel_world_size"),
    "tp": ("_get_model_parallel_rank", "_get_model_parallel_world_size"),
    "cp": ("_get_sequence_parallel_rank", "_get_sequence_parallel_world_size"),
}


def places() -> dict[str, tuple[int, int]]:
    """By axis; what this version of DeepSpeed does not say is left out."""
    groups: Any = sys.modules["deepspeed.utils.groups"]
    places = {}
    for axis, (rank, size) in _AXES.items():
        try:
            places[axis] = (int(getattr(groups, rank)()), int(getattr(groups, size)()))
        except Exception:  # not there, or not initialized
            continue
    return places
