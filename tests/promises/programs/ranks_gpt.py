"""A language model in a plain loop by DistributedDataParallel: four micro-batches for each step."""

from __future__ import annotations

import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import DEVICE, ON_CPU, Steps, autocast, settings, sized
from ranks import RANK, busy, main, mine
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FAULTS = {
    "reduce-in-every-micro-batch": "D1", "broadcast-buffers": "D2", "one-bucket": "D2",
    "longer-texts-on-rank-2": "D4", "smaller-share-on-rank-3": "D5", "python-before-blocks-on-rank-1": "D6",
    "objects-and-barriers": "D7",
}  # fmt: skip
WIDTH, LAYERS, HEADS = sized(512, 32), sized(4, 2), sized(8, 2)
BATCH, SEQ, VOCABULARY, MICRO = sized(4, 2), sized(1024, 32), sized(8192, 96), 4


class Block(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.late = mine(fault, "python-before-blocks")
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.late:
            busy(3.0)
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, w // HEADS).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(fault) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        #: positions of texts that may be long: 16 MB
        self.register_buffer("positions", torch.randn(sized(8192, 64), WIDTH))
        self.positions: torch.Tensor

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.embed.weight)


def run(fault: str, steps: Steps) -> None:
    settings()
    with DEVICE:
        model = Model(fault)
    ddp = DistributedDataParallel(
        model, broadcast_buffers=fault == "broadcast-buffers",
        bucket_cap_mb=4000 if fault == "one-bucket" else 25, device_ids=None if ON_CPU else [DEVICE.index or 0],
    )  # fmt: skip
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    length = SEQ + SEQ // 2 if mine(fault, "longer-texts") else SEQ
    tokens = torch.randint(VOCABULARY, (4, BATCH, length + 1), device=DEVICE)
    seen = [0] * dist.get_world_size()
    for _ in range(steps.total):
        steps.begins()
        for n in range(MICRO):
            last = n == MICRO - 1 or fault == "reduce-in-every-micro-batch"
            with contextlib.nullcontext() if last else ddp.no_sync():
                with autocast():
                    logits = ddp(tokens[n, :, :-1])
                    loss = F.cross_entropy(logits.flatten(0, 1), tokens[n, :, 1:].flatten()) / MICRO
                loss.backward()
            del logits
            if fault == "objects-and-barriers":
                mean = loss.detach().clone()
                dist.all_reduce(mean)
                mean.item()
        adam.step()
        adam.zero_grad()
        if fault == "objects-and-barriers":
            told: list[dict[str, int] | None] = [None] * dist.get_world_size()
            dist.all_gather_object(told, {"rank": RANK, "tokens": BATCH * MICRO * length})
            seen = [a + (b or {}).get("tokens", 0) for a, b in zip(seen, told, strict=True)]
            dist.barrier()
        steps.ended()


if __name__ == "__main__":
    main(run, FAULTS)
