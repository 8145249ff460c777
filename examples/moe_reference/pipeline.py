"""The pipeline: in slot t, stage s of p runs the forward of micro-batch t−s and the backward of t−2p+1+s, overlapped.

Every slot ends with one exchange between neighbours. A rank has m+2s−2p+1 slots with both (m micro-batches): the steady
ones. Within such a chunk, stages follow the order of the trainer's DualPipeV.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from faults import Faults
from layer import Block, Saved, Stages
from mesh import Mesh
from torch import nn
from torch.nn import functional as F

from stepscope import annotate


class Batch:
    """One micro-batch on this rank: what the layers saved, and its ends."""

    def __init__(self, layers: int) -> None:
        self.saved = [Saved() for _ in range(layers)]
        self.tokens: torch.Tensor | None = None
        self.embedded: torch.Tensor | None = None
        self.head_input: torch.Tensor | None = None
        self.loss: torch.Tensor | None = None


class Pipeline:
    """This rank's layers, and one training step through them."""

    def __init__(self, mesh: Mesh, faults: Faults, config: dict[str, int]) -> None:
        self.mesh, self.faults, self.config = mesh, faults, config
        width, device = config["width"], mesh.device
        per_stage = config["layers"] // mesh.pp
        self.blocks = nn.ModuleList(
            Block(width, config["hidden"], config["heads"], config["experts"], mesh.ep) for _ in range(per_stage)
        ).to(device=device, dtype=torch.bfloat16 if device.type == "cuda" else torch.float32)
        dtype = next(self.blocks.parameters()).dtype
        self.dtype = dtype
        self.embedding = nn.Embedding(config["vocabulary"], width).to(device, dtype) if mesh.first else None
        self.head = nn.Linear(width, config["vocabulary"]).to(device, dtype) if mesh.last else None
        first = mesh.stage * per_stage
        self.layers = [
            Stages(block, first + i, mesh, faults, config["seq"])  # type: ignore[arg-type]
            for i, block in enumerate(self.blocks)
        ]
        self.losses: list[torch.Tensor] = []

    def parameters(self) -> list[nn.Parameter]:
        ends = [p for m in (self.embedding, self.head) if m is not None for p in m.parameters()]
        return [*self.blocks.parameters(), *ends]

    # -- one step ------------------------------------------------------------------------------------------------

    def step(self, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Forward and backward of all micro-batches; gradients are left in the parameters."""
        mesh, m = self.mesh, len(batches)
        p, s = mesh.pp, mesh.stage
        open_: dict[int, Batch] = {}
        self.losses = []
        arrived: dict[str, torch.Tensor] = {}
        for t in range(m + 2 * p - 1):
            i, j = t - s, t - 2 * p + 1 + s
            forward, backward = i if 0 <= i < m else None, j if 0 <= j < m else None
            if forward is not None:
                open_[forward] = Batch(len(self.layers))
                open_[forward].tokens = batches[forward][0]
            if forward is not None or backward is not None:
                places = [None if at is None else (at, 0) for at in (forward, backward)]
                with annotate.chunk(*places):
                    self._chunk(
                        None if forward is None else open_[forward],
                        None if backward is None else open_[backward],
                        arrived,
                        None if forward is None else batches[forward][1],
                    )
            arrived = self._exchange(t, m, open_, forward, backward)
            if backward is not None:
                del open_[backward]

    def _chunk(
        self, ahead: Batch | None, back: Batch | None, arrived: dict[str, torch.Tensor], target: torch.Tensor | None
    ) -> None:
        layers, n = self.layers, len(self.layers)
        if back is not None:
            self._loss_backward(back, arrived)
        if ahead is not None and back is None:
            self._prolog(ahead, arrived)
            for k in range(n):
                self._connect(ahead, k)
                for number in range(1, 6):
                    layers[k].run(number, "f", ahead.saved[k])
        elif back is not None and ahead is None:
            for k in reversed(range(n)):
                self._connect_back(back, k)
                for number, way in ((5, "b"), (4, "b"), (3, "b"), (2, "b"), (3, "w"), (1, "b")):
                    layers[k].run(number, way, back.saved[k])
        elif ahead is not None and back is not None:
            self._overlapped(ahead, back, arrived)
        if back is not None:
            self._prolog_backward(back)
        if ahead is not None and target is not None:
            self._epilog(ahead, target)

    def _overlapped(self, ahead: Batch, back: Batch, arrived: dict[str, torch.Tensor]) -> None:
        """The trainer's order: while one micro-batch's tokens travel, the other one computes."""
        layers, n = self.layers, len(self.layers)
        last = n - 1
        layers[last].run(5, "b", back.saved[last])
        layers[last].run(4, "b", back.saved[last])
        self._prolog(ahead, arrived)
        layers[0].run(1, "f", ahead.saved[0])
        for k in range(n):
            b = last - k
            if k:
                with annotate.fused(layers[b + 1].number, layers[b].number, "b"):
                    layers[b + 1].work(1, "b", back.saved[b + 1])
                    self._connect_back(back, b)
                    layers[b].work(5, "b", back.saved[b])
                layers[k - 1].run(4, "f", ahead.saved[k - 1])
                layers[b].run(4, "b", back.saved[b])
                with annotate.fused(layers[k - 1].number, layers[k].number, "f"):
                    layers[k - 1].work(5, "f", ahead.saved[k - 1])
                    self._connect(ahead, k)
                    layers[k].work(1, "f", ahead.saved[k])
            layers[b].run(3, "b", back.saved[b])
            layers[k].run(2, "f", ahead.saved[k])
            layers[b].run(2, "b", back.saved[b])
            layers[b].run(3, "w", back.saved[b])
            layers[k].run(3, "f", ahead.saved[k])
        layers[last].run(4, "f", ahead.saved[last])
        layers[0].run(1, "b", back.saved[0])
        layers[last].run(5, "f", ahead.saved[last])

    # -- ends of the model ---------------------------------------------------------------------------------------

    @staticmethod
    def _connect(batch: Batch, k: int) -> None:
        if k:
            batch.saved[k]["input"] = batch.saved[k - 1]["output"]

    @staticmethod
    def _connect_back(batch: Batch, k: int) -> None:
        if k < len(batch.saved) - 1:
            batch.saved[k]["grad_output"] = batch.saved[k + 1]["grad_input"]

    def _prolog(self, batch: Batch, arrived: dict[str, torch.Tensor]) -> None:
        if self.embedding is None:
            batch.saved[0]["input"] = arrived["activation"]
            return
        with annotate.region("prolog_f"):
            batch.embedded = self.embedding(batch.tokens)
            batch.saved[0]["input"] = batch.embedded

    def _prolog_backward(self, batch: Batch) -> None:
        if batch.embedded is not None:
            with annotate.region("prolog_b"):
                torch.autograd.backward([batch.embedded], [batch.saved[0]["grad_input"]])

    def _epilog(self, batch: Batch, target: torch.Tensor) -> None:
        if self.head is None:
            return
        with annotate.region("epilog_f"):
            batch.head_input = batch.saved[-1]["output"].detach().requires_grad_()
            logits = self.head(batch.head_input)
        with annotate.region("criterion0(*outputs0, *labels0)"):
            batch.loss = F.cross_entropy(logits.float(), target)
            self.losses.append(batch.loss.detach())

    def _loss_backward(self, batch: Batch, arrived: dict[str, torch.Tensor]) -> None:
        if batch.loss is None:
            batch.saved[-1]["grad_output"] = arrived["gradient"]
            return
        with annotate.region("loss1.backward()"):
            batch.loss.backward()
            assert batch.head_input is not None
            batch.saved[-1]["grad_output"] = batch.head_input.grad

    # -- neighbours ----------------------------------------------------------------------------------------------

    def _exchange(
        self, t: int, m: int, open_: dict[int, Batch], forward: int | None, backward: int | None
    ) -> dict[str, torch.Tensor]:
        """Activations go on, gradients go back; what comes in is for the next slot."""
        mesh, s, p = self.mesh, self.mesh.stage, self.mesh.pp
        sends: list[tuple[int, torch.Tensor]] = []
        got: dict[str, tuple[int, torch.Tensor]] = {}

        def empty() -> torch.Tensor:
            return torch.empty(self.config["seq"], self.config["width"], dtype=self.dtype, device=mesh.device)

        if forward is not None and not mesh.last:
            sends.append((mesh.neighbour(1), open_[forward].saved[-1]["output"].detach()))
        if backward is not None and not mesh.first:
            sends.append((mesh.neighbour(-1), open_[backward].saved[0]["grad_input"]))
        if not mesh.first and 0 <= t - (s - 1) < m:
            got["activation"] = (mesh.neighbour(-1), empty())
        if not mesh.last and 0 <= t - 2 * p + 1 + s + 1 < m:
            got["gradient"] = (mesh.neighbour(1), empty())
        if not sends and not got:
            return {}
        with annotate.pipeline():
            ops = [dist.P2POp(dist.isend, x.contiguous(), to) for to, x in sends for _ in range(self._times(to))]
            ops += [dist.P2POp(dist.irecv, x, of) for of, x in got.values() for _ in range(self._times(of))]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
        return {name: x for name, (_, x) in got.items()}

    def _times(self, other: int) -> int:
        return self.faults.times([self.mesh.rank, other])
