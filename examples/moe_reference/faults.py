"""The simulator's faults, done to a real run: each makes the cause that a diagnosis has to find."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Any

import torch

from stepscope.errors import BadInput
from stepscope.simulate.job import faults as known

#: The stages after which the host waits: those that compute, in the order in which `per_layer` takes them.
_SYNCED = [(1, "f"), (1, "b"), (3, "f"), (3, "b"), (5, "f"), (5, "b"), (3, "w")]

#: Linux's SO_MAX_PACING_RATE, in bytes per second; Python has no name for it.
_MAX_PACING_RATE = 47
#: What one connection of NCCL carried over the loopback here, in bytes per second.
_CONNECTION = 600e6


class Faults:
    """What is planted on this rank. Every method does nothing where its fault is not planted."""

    def __init__(self, specs: list[str], rank: int, world: int, ep: int, ranks_per_node: int) -> None:
        self.rank, self.ranks_per_node = rank, ranks_per_node
        self._all = {}
        for spec in specs:
            fault = known.parse(spec)
            if fault.name == "clock":
                raise BadInput("--fault clock: a real run has the clock of its machine", "use stepscope simulate")
            if fault.name == "slow-link" and fault.params["node"] is not None:
                raise BadInput("--fault slow-link:node=…: name the two ranks of the link", "give ranks=A-B")
            known.check(fault, world, max(1, world // ranks_per_node), ep)
            self._all[fault.name] = fault.params
        self._mine = {n: p for n, p in self._all.items() if p.get("rank") in (None, rank)}
        self._scratch: torch.Tensor | None = None

    def _param(self, fault: str, key: str) -> Any:
        return self._mine[fault][key] if fault in self._mine else None

    # -- on the host ---------------------------------------------------------------------------------------------

    def before_step(self) -> None:
        """late-node: all ranks of a node come late to every step."""
        late = self._all.get("late-node")
        if late is not None and self.rank // self.ranks_per_node == late["node"]:
            time.sleep(late["delay_us"] / 1e6)

    def in_data(self) -> None:
        """dataloader: the batch is not there yet."""
        stall = self._param("dataloader", "stall_ms")
        if stall is not None:
            time.sleep(stall / 1e3)

    def before_stage(self) -> None:
        """slow-host: Python takes its time before every stage."""
        factor = self._param("slow-host", "factor")
        if factor is not None:
            until = time.perf_counter() + 60e-6 * factor
            while time.perf_counter() < until:
                pass

    def after_stage(self, number: int, way: str, x: torch.Tensor) -> None:
        """host-syncs: the host waits for what it has just launched, as `.item()` on a result does."""
        if (number, way) not in _SYNCED[: self._param("host-syncs", "per_layer") or 0]:
            return
        if x.is_cuda:
            torch.cuda.synchronize()
        else:
            x.sum().item()

    def in_layer(self, x: torch.Tensor) -> None:
        """alloc: memory is taken from the driver and given back."""
        for _ in range(self._param("alloc", "per_layer") or 0):
            if x.is_cuda:
                torch.cuda.empty_cache()
            del self._scratch
            self._scratch = torch.empty(96 << 20, dtype=torch.uint8, device=x.device)
            self._scratch = None

    # -- on the GPU ----------------------------------------------------------------------------------------------

    def extra_work(self, x: torch.Tensor, weight: torch.Tensor) -> None:
        """straggler: as much more of the layer's own GEMM as the factor says."""
        factor = self._param("straggler", "factor")
        if factor is None:
            return
        with torch.no_grad():
            more = factor - 1.0
            while more > 0:
                rows = max(1, int(x.shape[0] * min(more, 1.0)))
                torch.mm(x[:rows], weight)
                more -= 1.0

    def pieces(self) -> int:
        """tiny-kernels: into how many pieces an elementwise op is cut."""
        return int(self._param("tiny-kernels", "split") or 1)

    def shares(self, tokens: int, ep: int, ranks: list[int]) -> list[int]:
        """imbalance: how many of a rank's tokens go to each expert-parallel rank of its group (`ranks`)."""
        weights = [1.0] * ep
        uneven = self._all.get("imbalance")
        if uneven is not None and uneven["rank"] in ranks:
            weights[ranks.index(uneven["rank"])] = uneven["factor"]
        cut = [int(tokens * w / sum(weights)) for w in weights]
        cut[-1] += tokens - sum(cut)
        return cut

    # -- in communication ----------------------------------------------------------------------------------------

    @property
    def serialized(self) -> str | None:
        """`wait`: every all-to-all is waited for at once; `stream`: there is no asynchronous op at all."""
        how: str | None = self._param("serialized", "how")
        return how

    def slow_link(self, members: list[int], sockets: frozenset[int]) -> None:
        """slow-link: the connections among `members` are paced. The same bytes take longer there, and nowhere else."""
        if not self._linked(members):
            return
        rate = round(_CONNECTION / self._all["slow-link"]["factor"])
        for fd in sockets:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as connection:
                connection.setsockopt(socket.SOL_SOCKET, _MAX_PACING_RATE, rate.to_bytes(8, "little"))

    def times(self, members: list[int]) -> int:
        """slow-link without a GPU, where the group has no connections of its own: how often a transfer is made."""
        return max(1, round(self._all["slow-link"]["factor"])) if self._linked(members) else 1

    def _linked(self, members: list[int]) -> bool:
        slow = self._all.get("slow-link")
        return slow is not None and {int(r) for r in slow["ranks"].split("-")} <= set(members)


def ranks_per_node(given: int, world: int) -> int:
    """As told, else as torchrun says."""
    return given or int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))
