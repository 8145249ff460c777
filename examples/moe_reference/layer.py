"""One MoE layer in the five stages of the trainer. Every stage is an autograd graph of its own, so that the backward of
one micro-batch can run between the stages of another's forward."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from faults import Faults
from mesh import Mesh
from torch import nn
from torch.nn import functional as F

from stepscope import annotate


class Block(nn.Module):
    """Attention, router and experts of one layer; the experts are this rank's share."""

    def __init__(self, width: int, hidden: int, heads: int, experts: int, ep: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.router = nn.Linear(width, ep)
        local = max(1, experts // ep)
        self.up = nn.Parameter(torch.randn(local, width, hidden) * width**-0.5)
        self.down = nn.Parameter(torch.randn(local, hidden, width) * hidden**-0.5)

    def expert_parameters(self) -> list[nn.Parameter]:
        return [self.up, self.down]

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(1, 2, 0, 3).unsqueeze(1).unbind(0)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.proj(out.squeeze(0).transpose(0, 1).reshape(tokens, width))


class GeluInPieces(torch.autograd.Function):
    """GELU by one kernel for each piece, forward and backward: the same result and the same bytes, more launches."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, pieces: int) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.pieces = pieces
        out = torch.empty_like(x)
        for part, into in zip(x.tensor_split(pieces), out.tensor_split(pieces), strict=True):
            torch.ops.aten.gelu.out(part, out=into)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        out = torch.empty_like(x)
        cut = (t.tensor_split(ctx.pieces) for t in (grad.contiguous(), x, out))
        for slope, part, into in zip(*cut, strict=True):
            torch.ops.aten.gelu_backward.grad_input(slope, part, grad_input=into)
        return out, None


@dataclass
class Saved:
    """What one micro-batch leaves in one layer for its backward."""

    values: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.values[key] = value


class Stages:
    """The stages of one layer on one rank, forward and backward."""

    def __init__(self, block: Block, number: int, mesh: Mesh, faults: Faults, tokens: int) -> None:
        self.block, self.number, self.mesh, self.faults = block, number, mesh, faults
        base = mesh.rank - mesh.ep_rank
        self.members = [base + e for e in range(mesh.ep)]
        self.out = faults.shares(tokens, mesh.ep, self.members)  # to each rank of the group; the same on all of them
        self.into = [self.out[mesh.ep_rank]] * mesh.ep
        # which rank each leaving token goes to; made once, as a copy to the GPU in every step would be a host sync
        self.owner = torch.tensor([e for e, n in enumerate(self.out) for _ in range(n)], device=mesh.device)

    def run(self, number: int, way: str, saved: Saved) -> None:
        """One stage under its own range."""
        with annotate.stage(self.number, number, way):
            self.work(number, way, saved)

    def work(self, number: int, way: str, saved: Saved) -> None:
        self.faults.before_stage()
        getattr(self, f"stage{number}_{way}")(saved)
        self.faults.after_stage(number, way, saved["x"])

    # -- forward -------------------------------------------------------------------------------------------------

    def stage1_f(self, s: Saved) -> None:
        """Attention, router, and the order in which tokens leave."""
        s["x"] = s["input"].detach().requires_grad_()
        self.faults.in_layer(s["x"])
        residual = self.block.attend(s["x"])
        normed = self.block.norm2(residual)
        scores = self.block.router(normed)
        order = torch.argsort(scores.argmax(-1), stable=True)
        s["order"] = order
        s["outputs1"] = (residual, normed[order], torch.sigmoid(scores[order, self.owner]))
        self.faults.extra_work(normed, self.block.qkv.weight.t())

    def stage2_f(self, s: Saved) -> None:
        s["received"], s["dispatch"] = self._all_to_all(s["outputs1"][1], self.out, self.into)

    def stage3_f(self, s: Saved) -> None:
        """The experts, each on its part of what came in."""
        self._wait(s["dispatch"])
        s["tokens"] = s["received"].detach().requires_grad_()
        parts = torch.tensor_split(s["tokens"], self.block.up.shape[0])
        s["expert_out"] = torch.cat([self._expert(p, e) for e, p in enumerate(parts)])
        for _ in range(3):
            self.faults.extra_work(s["tokens"], self.block.up[0])

    def _expert(self, x: torch.Tensor, expert: int) -> torch.Tensor:
        hidden = x @ self.block.up[expert]
        pieces = self.faults.pieces()
        hidden = F.gelu(hidden) if pieces == 1 else GeluInPieces.apply(hidden, pieces)
        return hidden @ self.block.down[expert]

    def stage4_f(self, s: Saved) -> None:
        s["back"], s["combine"] = self._all_to_all(s["expert_out"], self.into, self.out)

    def stage5_f(self, s: Saved) -> None:
        """Weighted sum and residual."""
        self._wait(s["combine"])
        residual, _, gate = s["outputs1"]
        s["inputs5"] = tuple(t.detach().requires_grad_() for t in (residual, s["back"], gate))
        kept, back, weight = s["inputs5"]
        s["output"] = kept.index_add(0, s["order"], back * weight[:, None])

    # -- backward ------------------------------------------------------------------------------------------------

    def stage5_b(self, s: Saved) -> None:
        torch.autograd.backward([s["output"]], [s["grad_output"]])

    def stage4_b(self, s: Saved) -> None:
        s["grad_expert"], s["combine_b"] = self._all_to_all(s["inputs5"][1].grad, self.out, self.into)

    def stage3_b(self, s: Saved) -> None:
        """Gradient of the experts' input; that of their weights is stage3_w."""
        self._wait(s["combine_b"])
        (s["grad_tokens"],) = torch.autograd.grad(s["expert_out"], [s["tokens"]], s["grad_expert"], retain_graph=True)
        for _ in range(3):
            self.faults.extra_work(s["tokens"], self.block.up[0])

    def stage3_w(self, s: Saved) -> None:
        parameters = self.block.expert_parameters()
        found = torch.autograd.grad(s["expert_out"], parameters, s["grad_expert"])
        for parameter, grad in zip(parameters, found, strict=True):
            parameter.grad = grad if parameter.grad is None else parameter.grad.add_(grad)

    def stage2_b(self, s: Saved) -> None:
        s["grad_sent"], s["dispatch_b"] = self._all_to_all(s["grad_tokens"], self.into, self.out)

    def stage1_b(self, s: Saved) -> None:
        self._wait(s["dispatch_b"])
        self.faults.in_layer(s["x"])
        kept, _, weight = s["inputs5"]
        torch.autograd.backward(s["outputs1"], [kept.grad, s["grad_sent"], weight.grad])
        s["grad_input"] = s["x"].grad
        self.faults.extra_work(s["x"].detach(), self.block.qkv.weight.t())

    # -- communication -------------------------------------------------------------------------------------------

    def _all_to_all(self, sent: torch.Tensor, out: list[int], into: list[int]) -> tuple[torch.Tensor, Any]:
        sent = sent.detach().contiguous()
        got = sent.new_empty((sum(into), sent.shape[1]))
        if self.mesh.ep == 1:
            return got.copy_(sent), None
        asynchronous = self.faults.serialized != "stream"
        work = None
        for _ in range(1 if sent.is_cuda else self.faults.times(self.members)):
            work = dist.all_to_all_single(got, sent, into, out, group=self.mesh.ep_group, async_op=asynchronous)
        if self.faults.serialized == "wait" and work is not None:
            work.wait()
            return got, None
        return got, work

    @staticmethod
    def _wait(work: Any) -> None:
        if work is not None:
            work.wait()
