"""A mixture of experts in a plain loop: attention and an MoE layer, top-2 of 16 experts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from common import DEVICE, Steps, autocast, main, settings, sized
from torch import nn

FAULTS = {"experts-one-by-one": "A15"}
WIDTH, HIDDEN, EXPERTS, LAYERS = sized(1024, 16), sized(1024, 16), sized(32, 4), sized(2, 1)
BATCH, SEQ, VOCABULARY, TOP = sized(4, 2), sized(1024, 16), sized(8192, 64), 2


class Experts(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, HIDDEN) * 0.02)
        self.down = nn.Parameter(torch.randn(EXPERTS, HIDDEN, WIDTH) * 0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(TOP, -1)
        return self.one_by_one(x, weights, chosen) if self.fault else self.together(x, weights, chosen)

    def one_by_one(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for e in range(EXPERTS):
            token, slot = torch.where(chosen == e)
            y = F.gelu(x[token] @ self.up[e]) @ self.down[e]
            out = out.index_add(0, token, (y * weights[token, slot, None]).to(out.dtype))
        return out

    def together(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Tokens in the order of their experts; one grouped product for all experts."""
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        ends = torch.bincount(flat, minlength=EXPERTS).cumsum(0).int()
        token = order // TOP
        y = F.gelu(torch._grouped_mm(x[token].bfloat16(), self.up.bfloat16(), offs=ends))
        y = torch._grouped_mm(y, self.down.bfloat16(), offs=ends)
        return torch.zeros_like(x).index_add(0, token, (y * weights.flatten()[order, None]).to(x.dtype))


class Model(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2 * LAYERS))
        self.experts = nn.ModuleList(Experts(fault) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for n, (qkv, experts) in enumerate(zip(self.qkv, self.experts, strict=True)):
            b, t, w = x.shape
            q, k, v = qkv(self.norms[2 * n](x)).view(b, t, 3, 8, w // 8).permute(2, 0, 3, 1, 4)
            x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, w)
            x = x + experts(self.norms[2 * n + 1](x).flatten(0, 1)).view(b, t, w)
        return self.head(x)


def run(fault: str, steps: Steps) -> None:
    settings()
    with DEVICE:
        model = Model("" if fault == "none" else fault)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(VOCABULARY, (8, BATCH, SEQ + 1), device=DEVICE)
    for i in range(steps.total):
        steps.begins()
        with autocast():
            logits = model(tokens[i % 8, :, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[i % 8, :, 1:].flatten())
        loss.backward()
        adam.step()
        adam.zero_grad()
        steps.ended()


if __name__ == "__main__":
    main(run, FAULTS)
