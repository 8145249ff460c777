"""The process groups of the job: pipeline, data and expert parallel, outer to inner as in the trainer."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Mesh:
    """Where this rank is, and whom it talks to."""

    rank: int
    world: int
    pp: int
    dp: int
    ep: int
    device: torch.device
    ep_group: Any
    dp_group: Any  # replicas of the same experts
    dense_group: Any  # replicas of everything else: data and expert parallel ranks of one stage
    ep_sockets: frozenset[int]  # file descriptors over which the expert parallel group talks

    @property
    def stage(self) -> int:
        return self.rank // (self.dp * self.ep)

    @property
    def dp_rank(self) -> int:
        return self.rank // self.ep % self.dp

    @property
    def ep_rank(self) -> int:
        return self.rank % self.ep

    @property
    def first(self) -> bool:
        return self.stage == 0

    @property
    def last(self) -> bool:
        return self.stage == self.pp - 1

    def neighbour(self, by: int) -> int:
        """The rank `by` stages further, at the same place in its stage."""
        return self.rank + by * self.dp * self.ep


def start(pp: int, dp: int, ep: int, share_gpu: bool) -> Mesh:
    """Join the job that torchrun (or srun) started. NCCL on GPUs, gloo on CPUs."""
    rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
    world = int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1")))
    local = int(os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0")))
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    if pp * dp * ep != world:
        raise SystemExit(f"pp·dp·ep = {pp}·{dp}·{ep} = {pp * dp * ep}, but {world} ranks were started")
    gpus = torch.cuda.device_count()
    if gpus and local >= gpus and not share_gpu:
        raise SystemExit(f"local rank {local} of a node with {gpus} GPUs; --share-gpu lets ranks share one")
    if gpus and share_gpu:
        os.environ.setdefault("NCCL_HOSTID", f"rank{rank}")  # NCCL refuses two ranks on one GPU of one host
    device = torch.device("cuda", local % gpus) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if gpus else "gloo")
    groups: dict[str, Any] = {}
    for stage in range(pp):
        base = stage * dp * ep
        rows = [[base + d * ep + e for e in range(ep)] for d in range(dp)]
        columns = [[base + d * ep + e for d in range(dp)] for e in range(ep)]
        for name, members in (
            [("ep", r) for r in rows] + [("dp", c) for c in columns] + [("dense", [r for row in rows for r in row])]
        ):
            group = dist.new_group(members, group_desc=name)  # every rank makes every group
            if rank in members:
                groups[name] = group
    # Communicators are made now, by all their ranks, and not in the first step.
    ep_sockets: frozenset[int] = frozenset()
    for name, group in ((None, None), *groups.items()):
        before = _sockets()
        dist.all_reduce(torch.zeros(1, device=device), group=group)
        if name == "ep":
            one = torch.zeros(ep, device=device)
            dist.all_to_all_single(torch.empty_like(one), one, group=group)
        if gpus:
            torch.cuda.synchronize()
        if name == "ep":
            ep_sockets = _sockets() - before
    return Mesh(rank, world, pp, dp, ep, device, groups["ep"], groups["dp"], groups["dense"], ep_sockets)


def _sockets() -> frozenset[int]:
    """Sockets that this process has open, where the system says."""
    found = set()
    with contextlib.suppress(OSError):
        for fd in (int(f.name) for f in Path("/proc/self/fd").iterdir()):
            with contextlib.suppress(OSError):  # the listing's own is gone by now
                if stat.S_ISSOCK(os.fstat(fd).st_mode):
                    found.add(fd)
    return frozenset(found)
