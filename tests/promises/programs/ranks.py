"""What programs of several ranks share: the process group, the turn on the GPU, a rank of its own kind.

torchrun starts them. Four ranks share one GPU by MPS, each a quarter of it; a rank that is to have a slower GPU is
given less (`smaller-share-on-rank-N`). PAIRS_CPU=1: gloo.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import common
import torch
import torch.distributed as dist
from common import DEVICE, ON_CPU, Run

RANK = int(os.environ.get("RANK", "0"))
_held: list[IO[str]] = []


def of_rank(fault: str) -> int | None:
    """The rank that a fault is of, by its name."""
    found = re.search(r"-on-rank-(\d+)$", fault)
    return int(found[1]) if found else None


def mine(fault: str, prefix: str) -> bool:
    """Whether this rank has the fault of that name."""
    return fault.startswith(prefix) and of_rank(fault) == RANK


def busy(milliseconds: float) -> None:
    """Python that computes, as logging or a metric would."""
    end = time.perf_counter() + milliseconds / 1e3
    while time.perf_counter() < end:
        sum(range(50))


def _turn() -> None:
    """Wait until no other job uses the GPU: rank 0 has the lock, and the others wait for rank 0."""
    name = os.environ.get("PAIRS_TURN")
    if name:
        _held.append(Path(name).open("a"))  # noqa: SIM115
        fcntl.flock(_held[-1], fcntl.LOCK_SH)
    some = torch.ones(64, 64, device=DEVICE)
    dist.all_reduce(some)
    some.sum().item()
    if name:
        fcntl.flock(_held[-1], fcntl.LOCK_UN)
        if RANK == 0:
            fcntl.flock(_held[-1], fcntl.LOCK_EX)
    dist.barrier()


def main(run: Run, faults: Mapping[str, str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="none")
    given, _ = parser.parse_known_args()
    if mine(given.fault, "smaller-share"):
        os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = "12"
    if not ON_CPU:
        torch.cuda.set_device(0)
    os.environ["LOCAL_RANK"] = "0"  # every rank has the only GPU; `capture run --share-gpu` says so, too
    dist.init_process_group("gloo" if ON_CPU else "nccl")
    common.main(run, faults, turn=_turn, writes=RANK == 0)
    dist.barrier()
    dist.destroy_process_group()
