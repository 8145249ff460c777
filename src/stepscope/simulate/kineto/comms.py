"""Collectives as torch.profiler records them: process groups, and the metadata of one communication.

NCCL states a message per rank or per peer; PyTorch counts the elements of the whole tensors. Both are of the same call.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise

from stepscope.simulate.trace.trace import SimGroup, SimTrace

#: PyTorch prints at most this many ranks of a group beside a collective; `pg_config` has them all.
_RANKS_PRINTED = 30


@dataclass(frozen=True)
class Collective:
    """PyTorch's names for an NCCL call, and how many messages its input and output tensors hold (`n`: one per rank)."""

    name: str
    annotation: str
    inputs: str = "1"
    outputs: str = "1"
    rooted: bool = False


COLLECTIVES = {
    "ncclAllReduce": Collective("allreduce", "nccl:all_reduce"),
    "ncclAllGather": Collective("_allgather_base", "nccl:_all_gather_base", outputs="n"),
    "ncclReduceScatter": Collective("_reduce_scatter_base", "nccl:_reduce_scatter_base", inputs="n"),
    "ncclAlltoAll": Collective("all_to_allv", "nccl:all_to_all", inputs="n", outputs="n"),
    "ncclBroadcast": Collective("broadcast", "nccl:broadcast", rooted=True),
    "ncclReduce": Collective("reduce", "nccl:reduce", rooted=True),
    "ncclGather": Collective("gather", "nccl:gather", outputs="n", rooted=True),
    "ncclScatter": Collective("scatter", "nccl:scatter", inputs="n", rooted=True),
    "ncclSend": Collective("send", "nccl:send"),
    "ncclRecv": Collective("recv", "nccl:recv"),
}


def call_of_kernel(kernel: str, peer: int) -> str | None:
    """The NCCL call behind a kernel whose host-side range is missing: by its name, as far as that goes."""
    for part, call in (
        ("AllReduce", "ncclAllReduce"),
        ("AllGather", "ncclAllGather"),
        ("ReduceScatter", "ncclReduceScatter"),
        ("Broadcast", "ncclBroadcast"),
        ("Reduce", "ncclReduce"),
    ):
        if part in kernel:
            return call
    if "SendRecv" in kernel:
        return "ncclAlltoAll" if peer < 0 else "ncclSend"
    return None


class ProcessGroups:
    """The communicators under the names PyTorch gives them: "0" is the whole job, others count up as created."""

    def __init__(self, trace: SimTrace, rank: int) -> None:
        everyone = tuple(r.rank for r in trace.ranks)
        self._rank = rank
        self._groups = trace.groups
        default = next((i for i, g in enumerate(trace.groups) if g.axis == "world"), None)
        others = [i for i in range(len(trace.groups)) if i != default]
        self._names = {i: str(n) for n, i in enumerate(others, 1)}
        if default is not None:
            self._names[default] = "0"
            everyone = trace.groups[default].ranks
        mine = [("0", "default_pg", everyone)]
        mine += [(self._names[i], *self._about(trace.groups[i])) for i in others if rank in trace.groups[i].ranks]
        #: Ranks of the whole job: a trace may hold those of some nodes only.
        self.world = len(everyone)
        self.count = 1 + len(others)
        self.config = [
            {"pg_name": n, "pg_desc": d, "backend_config": "cuda:nccl", "pg_size": len(r), "ranks": list(r)}
            for n, d, r in mine
        ]
        self._cache: dict[tuple[str, int, int, int, str], tuple[str, str]] = {}

    @staticmethod
    def _about(group: SimGroup) -> tuple[str, tuple[int, ...]]:
        return ("default_pg" if group.axis == "world" else f"mesh_{group.axis}"), group.ranks

    def annotation(self, call: str, group: int, peer: int) -> str:
        """The annotation PyTorch opens around the call."""
        name = COLLECTIVES[call].annotation
        if call in ("ncclSend", "ncclRecv") and peer >= 0 and group >= 0:
            me = self._groups[group].ranks.index(self._rank)
            return f"{name} {me}->{peer}" if call == "ncclSend" else f"{name} {me}<-{peer}"
        return name

    def metadata(self, call: str, group: int, size: int, peer: int, dtype: str) -> tuple[str, str]:
        """JSON members for the kernel, and those that `record_param_comms` has beside them; both begin with a comma."""
        key = (call, group, size, peer, dtype)
        if key not in self._cache:
            self._cache[key] = self._metadata(*key)
        return self._cache[key]

    def _metadata(self, call: str, group: int, size: int, peer: int, dtype: str) -> tuple[str, str]:
        kind, about = COLLECTIVES[call], self._groups[group]
        ranks, n = about.ranks, len(about.ranks)
        elements = size // _WIDTH[dtype]
        shown = ", ".join(map(str, ranks[:_RANKS_PRINTED])) + (", ..." if n > _RANKS_PRINTED else "")
        kernel: dict[str, object] = {
            "Collective name": kind.name,
            "In msg nelems": elements * (n if kind.inputs == "n" else 1),
            "Out msg nelems": elements * (n if kind.outputs == "n" else 1),
            "Group size": n,
            "dtype": dtype,
            "In split size": "[]",
            "Out split size": "[]",
            "Process Group Name": self._names[group],
            "Process Group Description": self._about(about)[0],
            "Process Group Ranks": f"[{shown}]",
        }
        # For point-to-point, PyTorch's "Rank" is the peer in the group; only Src and Dst are ranks of the job.
        rank = max(peer, 0) if kind.rooted or peer >= 0 else ranks.index(self._rank)
        if kind.name in ("send", "recv") and 0 <= peer < n:
            kernel["Dst Rank" if kind.name == "send" else "Src Rank"] = ranks[peer]
        steps = {b - a for a, b in pairwise(ranks)}
        host = {
            "Rank": rank,
            "Global rank start": ranks[0],
            "Global rank stride": steps.pop() if len(steps) == 1 else 1 if not steps else -1,
        }
        return ", " + json.dumps(kernel)[1:-1], ", " + json.dumps(host)[1:-1]


_WIDTH = {"Byte": 1, "BFloat16": 2, "Half": 2, "Float": 4, "Double": 8, "Long": 8}
_SUFFIX = (("_f32", "Float"), ("_f64", "Double"), ("_f16", "Half"), ("_u8", "Byte"), ("_i64", "Long"))


def dtype_of(kernel: str, size: int) -> str:
    """The element type: by the kernel's suffix, else bfloat16, else bytes where the size would not divide."""
    named = next((dtype for suffix, dtype in _SUFFIX if suffix in kernel), "BFloat16")
    return named if size % _WIDTH[named] == 0 else "Byte"
