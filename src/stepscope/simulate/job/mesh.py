"""Who is where: mesh coordinates, nodes, processes and communicators."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from itertools import product

from stepscope.simulate.job.scenario import AXES, Scenario
from stepscope.simulate.trace.trace import SimGroup, SimRank

#: Axes over which gradients are reduced.
DATA_AXES = ("dp", "cp", "ep")
_FIRST_PID = 2_100
_AUTOGRAD_TID = 40_000


@dataclass
class Mesh:
    """Ranks, communicators, and which of them each rank is in: `of[rank][axis]` is an index into `groups`."""

    ranks: list[SimRank]
    groups: list[SimGroup]
    of: list[dict[str, int]] = field(default_factory=list)

    def peer(self, rank: int, axis: str, step: int) -> int:
        """The rank `step` further along an axis, around its end."""
        members = self.groups[self.of[rank][axis]].ranks
        return members[(members.index(rank) + step) % len(members)]


def autograd_tid(main_tid: int) -> int:
    """The thread that runs backward passes."""
    return main_tid + _AUTOGRAD_TID


def build(s: Scenario) -> Mesh:
    """The mesh of a job. A rank is in one group per axis, in `data` (gradients) and in `world`."""
    sizes = {axis: int(getattr(s, axis)) for axis in AXES}
    per_node = s.world // s.nodes
    coords = [dict(zip(AXES, c, strict=True)) for c in product(*(range(sizes[a]) for a in AXES))]
    ranks = [
        SimRank(
            rank=r,
            # Nodes are alike, so pids collide between them, as they do in containers.
            pid=_FIRST_PID + r % per_node // s.gpus_per_process * s.gpus_per_process,
            node=r // per_node,
            host=f"node{r // per_node}",
            device=r % per_node,
            setup=_label(s, r, c, sizes) if s.gpus_per_process == 1 else "setup",  # labels are of processes
            coords={a: (c[a], sizes[a]) for a in AXES},
            main_tid=_FIRST_PID + r % per_node,
            batch=fault.params["factor"] if (fault := s.fault("larger-batch", r)) else 1.0,
        )
        for r, c in enumerate(coords)
    ]
    mesh = Mesh(ranks, [], [{} for _ in ranks])
    for axis in AXES:
        _split(mesh, coords, axis, (axis,), axis, s.seed)
    if s.schedule in ("interleaved", "two-stage"):
        _split(mesh, coords, "pp_back", ("pp",), "pp", s.seed)
    data = ("dp", *(a for a in DATA_AXES[1:] if sizes[a] > 1))
    if len(data) == 1:
        for of in mesh.of:
            of["data"] = of["dp"]
    else:
        _split(mesh, coords, "data", data, "+".join(data), s.seed)
    _split(mesh, coords, "world", AXES, "world", s.seed)
    return mesh


def _split(mesh: Mesh, coords: list[dict[str, int]], key: str, vary: tuple[str, ...], axis: str, seed: int) -> None:
    """Make the communicators whose members differ in the axes `vary` alone."""
    members: dict[tuple[int, ...], list[int]] = {}
    for rank, c in enumerate(coords):
        members.setdefault(tuple(v for a, v in c.items() if a not in vary), []).append(rank)
    for ranks in members.values():
        for rank in ranks:
            mesh.of[rank][key] = len(mesh.groups)
        digest = hashlib.sha256(f"{seed}/{key}/{ranks}".encode()).digest()
        mesh.groups.append(SimGroup(int.from_bytes(digest[:8], "little"), axis, tuple(ranks)))


def _label(s: Scenario, rank: int, at: dict[str, int], sizes: dict[str, int]) -> str:
    # The trainer has no tensor parallelism; where there is some, it is one more axis of the label.
    axes = [a for a in AXES if a != "tp" or sizes["tp"] > 1]
    return f"rank={rank}; {' '.join(f'{a}={at[a]}/{sizes[a]}' for a in axes)}; mbs={s.mbs} seq={s.seq}"
