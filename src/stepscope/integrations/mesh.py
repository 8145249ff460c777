"""Where this rank stands on the mesh, by those who know: Megatron-LM, DeepSpeed, torch's DeviceMesh, DDP. No guesses.

`(coordinate, size)` by axis, under the names that the setup label uses. torchtitan, FSDP2 and accelerate's parallelism
make a DeviceMesh; torchtitan's containers of optimizers step torch's, which the hooks take for one step together.
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any

#: A coordinate on an axis of the mesh, and the axis's size.
Place = tuple[int, int]

#: What has to be imported by the program → our file that asks it.
_KNOWING = {"megatron.core.parallel_state": "megatron", "deepspeed.utils.groups": "deepspeed"}
#: DeviceMesh's names of axes → the label's. torchtitan and accelerate name a part of dp that shards.
_AXES = {
    "pp": "pp", "pipeline": "pp", "dp": "dp", "data": "dp", "dp_replicate": "dp_replicate", "dp_shard": "dp_shard",
    "fsdp": "dp_shard", "cp": "cp", "context": "cp", "tp": "tp", "tensor": "tp", "ep": "ep", "expert": "ep",
}  # fmt: skip


def places(torch: Any, world: int) -> dict[str, Place]:
    """By axis; empty where nobody says."""
    if world == 1:
        return dict.fromkeys(("pp", "dp", "cp", "ep"), (0, 1))
    for name, ours in _KNOWING.items():
        if name in sys.modules:
            places: dict[str, Place] = importlib.import_module(f"stepscope.integrations.{ours}").places()
            if places:
                return places
    return _of_device_mesh(world) or _of_ddp(torch, world)


def _of_device_mesh(world: int) -> dict[str, Place]:
    """The mesh with most axes that holds the whole world."""
    module = sys.modules.get("torch.distributed.device_mesh")
    kind = getattr(module, "DeviceMesh", None)
    if kind is None:
        return {}
    meshes = [m for m in gc.get_objects() if type(m) is kind and m.mesh_dim_names and m.size() == world]
    if not meshes:
        return {}
    mesh = max(meshes, key=lambda m: m.ndim)
    at = mesh.get_coordinate() or [0] * mesh.ndim
    axes = {
        _AXES.get(name.lower(), name.lower()): (int(where), int(size))
        for name, where, size in zip(mesh.mesh_dim_names, at, mesh.shape, strict=True)
    }
    return _one_dp(axes)


def _one_dp(axes: dict[str, Place]) -> dict[str, Place]:
    """Replicas and shards of data parallelism are one axis of the label, the shards within a replica."""
    outer, inner = axes.pop("dp_replicate", (0, 1)), axes.pop("dp_shard", (0, 1))
    if outer[1] * inner[1] > 1 and "dp" not in axes:
        axes["dp"] = (outer[0] * inner[1] + inner[0], outer[1] * inner[1])
    return axes


def _of_ddp(torch: Any, world: int) -> dict[str, Place]:
    """DistributedDataParallel over the whole world: nothing but replicas."""
    kind = torch.nn.parallel.DistributedDataParallel
    if any(type(m) is kind and m.process_group.size() == world for m in gc.get_objects()):
        return {"pp": (0, 1), "dp": (torch.distributed.get_rank(), world), "cp": (0, 1), "ep": (0, 1)}
    return {}
