"""A small transformer under torch.compile, in a plain loop."""

from __future__ import annotations

import torch
import torch._inductor.config
import torch.nn.functional as F
from common import DEVICE, Steps, autocast, main, settings, sized
from torch import nn

FAULTS = {"break-in-every-layer": "A14", "eager-and-small": "A14", "longer-dynamic": "twin", "longer-from-step-8": "C5"}
WIDTH, LAYERS, BATCH, SEQ = sized(512, 16), sized(2, 1), sized(8, 2), sized(256, 16)


class Layer(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.up, self.down = (
            nn.Linear(WIDTH, 3 * WIDTH),
            nn.Linear(WIDTH, 4 * WIDTH),
            nn.Linear(4 * WIDTH, WIDTH),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, 8, w // 8).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, w)
        if self.fault == "break-in-every-layer":
            torch._dynamo.graph_break()
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


def run(fault: str, steps: Steps) -> None:
    settings()
    torch._dynamo.reset()
    torch._inductor.config.force_disable_caches = fault.startswith("longer")
    with DEVICE:
        model = nn.Sequential(*(Layer(fault) for _ in range(LAYERS)))
    if fault != "eager-and-small":
        model.compile(dynamic=fault == "longer-dynamic")
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs = torch.randn(BATCH, 2 * SEQ, WIDTH, device=DEVICE)
    for i in range(steps.total):
        steps.begins()
        # A shape that is new is compiled for, in the middle of the run.
        length = SEQ + SEQ // 2 if fault.startswith("longer") and i >= 8 else SEQ
        with autocast():
            y = model(inputs[:, :length])
            loss = F.mse_loss(y, inputs[:, :length])
        loss.backward()
        adam.step()
        adam.zero_grad()
        steps.ended()


if __name__ == "__main__":
    main(run, FAULTS)
